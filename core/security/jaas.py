"""Lines of JAAS, as `sasl.jaas.config` has them: `MODULE FLAG name="value" ...;`.

The syntax is that of Java's `StreamTokenizer` as Kafka's `JaasConfig` sets it up: words, texts in quotes with Java's
escapes, and comments. No error text quotes a value.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...ports.errors import ConfigError
from ...ports.values import Secret, frozen

FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
_PUNCTUATION = "=;"
_OTHER_WORD_LETTERS = "-_$."


@frozen(kw_only=True)
class JaasEntry:
    """One login module with its options."""

    module: str
    flag: str
    options: Mapping[str, Secret[str]]

    def option(self, name: str) -> str | None:
        """Return the value of an option, or None."""
        found = self.options.get(name)
        return None if found is None else found.value


def parse_jaas(text: Secret[str], key: str) -> Sequence[JaasEntry]:
    """Return the login modules of a JAAS line. Raises `ConfigError`, which names the key and never quotes a value."""
    entries = []
    tokens = list(_tokens(text.value, key))
    position = 0
    while position < len(tokens):
        entry, position = _entry(tokens, position, key)
        entries.append(entry)
    return entries


def parse_one_login_module(text: Secret[str], key: str) -> JaasEntry:
    """Return the only login module of a JAAS line. Raises `ConfigError`."""
    entries = parse_jaas(text, key)
    if len(entries) != 1:
        raise ConfigError(f"{key} contains {len(entries)} login modules, should be 1 module")
    return entries[0]


_Token = tuple[str, bool]
"""A word, and True if it is a punctuation mark."""


def _entry(tokens: Sequence[_Token], position: int, key: str) -> tuple[JaasEntry, int]:
    words: list[str] = []
    for what in ("login module", "control flag"):
        if position >= len(tokens) or tokens[position][1]:
            raise ConfigError(f'{key}: the {what} is not specified; write MODULE required name="value";')
        words.append(tokens[position][0])
        position += 1
    module, flag = words
    if flag.lower() not in FLAGS:
        raise ConfigError(f"{key}: the control flag of {module} is none of {', '.join(FLAGS)}")
    options: dict[str, Secret[str]] = {}
    while True:
        if position >= len(tokens):
            raise ConfigError(f"{key}: the entry of {module} is not terminated by a semicolon")
        name, is_mark = tokens[position]
        if is_mark:
            if name == ";":
                return JaasEntry(module=module, flag=flag.lower(), options=options), position + 1
            raise ConfigError(f"{key}: an option of {module} has no name")
        follows = tokens[position + 1 : position + 3]
        if len(follows) != 2 or follows[0] != ("=", True) or follows[1][1]:
            # What stands in the place of a name may be a part of a password whose quotes are wrong.
            raise ConfigError(f'{key}: option {len(options) + 1} of {module} has no value; write name="value"')
        if name in options:
            raise ConfigError(f"{key}: an option of {module} is given twice, as option {len(options) + 1}")
        options[name] = Secret(follows[1][0])
        position += 3


def _tokens(text: str, key: str) -> Iterator[_Token]:
    position, end = 0, len(text)
    while position < end:
        letter = text[position]
        if letter <= " ":
            position += 1
        elif text.startswith("//", position):
            position = _end_of_line(text, position)
        elif text.startswith("/*", position):
            close = text.find("*/", position + 2)
            if close < 0:
                raise ConfigError(f"{key}: a comment is not closed")
            position = close + 2
        elif letter in _PUNCTUATION:
            yield letter, True
            position += 1
        elif letter in "\"'":
            word, position = _quoted(text, position, key)
            yield word, False
        elif _is_word_letter(letter):
            start = position
            while position < end and _is_word_letter(text[position]):
                position += 1
            yield text[start:position], False
        else:
            raise ConfigError(f"{key}: unexpected character at position {position + 1}; put values into double quotes")


def _is_word_letter(letter: str) -> bool:
    return letter.isalnum() or letter in _OTHER_WORD_LETTERS or letter >= "\u00a0"


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _quoted(text: str, start: int, key: str) -> tuple[str, int]:
    """Return the content of a text in quotes, and the position behind it."""
    quote, position = text[start], start + 1
    content: list[str] = []
    while position < len(text):
        letter = text[position]
        if letter == quote:
            return "".join(content), position + 1
        if letter in "\r\n":
            break
        if letter != "\\":
            content.append(letter)
            position += 1
            continue
        escape, position = text[position + 1 : position + 2], position + 2
        if escape and escape in _OCTAL:
            digits = escape
            most = 3 if escape <= "3" else 2
            while len(digits) < most and position < len(text) and text[position] in _OCTAL:
                digits += text[position]
                position += 1
            content.append(chr(int(digits, 8)))
        else:
            content.append(_ESCAPES.get(escape, escape))
    raise ConfigError(f"{key}: a text in quotes is not closed")
