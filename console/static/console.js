// The console's own script: the search key, dark and light, the reader's zone, charts.
(() => {
  'use strict';
  const year = 'max-age=31536000; path=/; samesite=lax';
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || '';
  const cookie = name => (document.cookie.split('; ').find(each => each.startsWith(name + '=')) || '').slice(name.length + 1);
  const isText = element => element && (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable);

  // The server writes times in this zone from the next page on; those of this first page are written here.
  if (zone && decodeURIComponent(cookie('zone')) !== zone) {
    document.cookie = 'zone=' + encodeURIComponent(zone).replaceAll('%2F', '/') + '; ' + year;
    if (zone !== 'UTC') document.querySelectorAll('time[datetime]').forEach(element => {
      element.title = new Date(element.dateTime).toLocaleString();
    });
  }

  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === '/' && !isText(document.activeElement)) {
      const field = document.querySelector('[data-search]');
      if (field) { event.preventDefault(); const hidden = field.closest('details'); if (hidden) hidden.open = true; field.focus(); field.select(); }
      else { event.preventDefault(); location.href = '/topics'; }
    } else if (event.key === 'Escape' && document.activeElement && document.activeElement.matches('[data-search]')) {
      document.activeElement.blur();
    }
  });

  // On a phone the menu and the tabs are wider than the screen: the current entry is in sight.
  document.querySelectorAll('nav [aria-current=page]').forEach(element => {
    const bar = element.parentElement, over = element.offsetLeft + element.offsetWidth - bar.offsetLeft - bar.clientWidth;
    if (over > 0) bar.scrollLeft = over + 24;
  });

  // What a form shows depends on its choice: an offset, or a time.
  document.addEventListener('change', event => {
    if (!event.target.matches('[data-from]')) return;
    document.querySelectorAll('[data-when]').forEach(element => { element.hidden = element.dataset.when !== event.target.value; });
  });

  // The live tail: rows as the server has written them, the newest first.
  const ROWS_MAX = 500;
  let tail = null;
  const follow = button => {
    const state = document.getElementById('live-state'), rows = document.getElementById('rows');
    if (tail) {
      tail.close();
      tail = null;
      button.setAttribute('aria-pressed', 'false');
      button.textContent = 'Live tail';
      state.classList.remove('bad');
      state.textContent = 'The live tail is paused.';
      return;
    }
    let seen = 0, skipped = 0;
    rows.replaceChildren();
    document.getElementById('messages').hidden = false;
    const nothing = document.getElementById('nothing');
    if (nothing) nothing.remove();
    button.setAttribute('aria-pressed', 'true');
    button.textContent = 'Pause';
    const started = new Date().toLocaleTimeString('en-GB');
    const say = () => {
      state.classList.remove('bad');
      state.textContent = !seen ? 'Waiting for messages…' : seen.toLocaleString('en') + ' since ' + started + (skipped ? ', ' + skipped.toLocaleString('en') + ' more came too fast to show' : '');
    };
    say();
    tail = new EventSource(button.dataset.live);
    tail.addEventListener('rows', event => {
      const sent = JSON.parse(event.data), part = document.createElement('template');
      part.innerHTML = '<table><tbody>' + sent.html + '</tbody></table>';
      const added = [...part.content.querySelectorAll('tbody > tr')];
      added.forEach(row => row.classList.add('fresh'));
      rows.prepend(...added);
      while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
      seen += added.length;
      skipped += sent.skipped;
      say();
    });
    tail.addEventListener('ready', say);
    tail.addEventListener('trouble', event => { state.classList.add('bad'); state.textContent = 'No messages come now, the tail continues when they do: ' + JSON.parse(event.data); });
    tail.addEventListener('error', () => { if (tail && tail.readyState === EventSource.CLOSED) state.textContent = 'The live tail has ended: the console refused it, or stopped.'; });
  };
  document.addEventListener('click', event => {
    const button = event.target.closest('[data-live]');
    if (button) follow(button);
  });

  const isDark = () => {
    const set = document.documentElement.dataset.theme;
    return set ? set === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  };
  const button = document.getElementById('theme');
  const name = () => { if (button) button.textContent = isDark() ? 'Light' : 'Dark'; };
  if (button) button.addEventListener('click', () => {
    const next = isDark() ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    document.cookie = 'theme=' + next + '; ' + year;
    name();
    draw(document);
  });
  name();

  const colour = variable => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  const draw = root => {
    if (!window.uPlot) return;
    root.querySelectorAll('[data-chart]').forEach(element => {
      const data = JSON.parse(element.dataset.chart);
      element.replaceChildren();
      if (data[0].length < 2) {
        const text = document.createElement('p');
        text.className = 'none';
        text.textContent = 'Values appear here within some seconds.';
        element.append(text);
        return;
      }
      const axis = { stroke: colour('--soft'), grid: { stroke: colour('--rule'), width: 1 }, ticks: { show: false } };
      const plot = new uPlot({
        width: element.clientWidth, height: element.clientHeight, legend: { show: false }, cursor: { y: false },
        padding: [8, 30, 0, 0],
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [{ ...axis, space: 80, size: 28, incrs: [1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 86400], values: (_, marks) => marks.map(mark => new Date(mark * 1000).toLocaleTimeString('en-GB')) }, { ...axis, size: 60, values: (_, marks) => marks.map(mark => mark.toLocaleString('en')) }],
        series: [{}, { label: element.dataset.label, stroke: colour('--s0'), width: 2, fill: colour('--s0') + '22', points: { show: false } }],
      }, data, element);
      element.plot = plot;
    });
  };
  addEventListener('resize', () => document.querySelectorAll('[data-chart]').forEach(element => {
    if (element.plot) element.plot.setSize({ width: element.clientWidth, height: element.clientHeight });
  }));
  document.addEventListener('htmx:afterSwap', event => draw(event.target.parentElement || document));
  addEventListener('load', () => draw(document));
})();
