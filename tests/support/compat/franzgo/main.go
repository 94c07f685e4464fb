// franz-go behind lines of JSON: {"id", "do", ...} on standard input, {"id", "ok"} or {"id", "error"} on standard output.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 30 * time.Second

type record struct {
	Value     []byte  `json:"value"`
	Key       []byte  `json:"key"`
	Headers   [][]any `json:"headers"`
	Timestamp *int64  `json:"timestamp"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Delivery  int32   `json:"deliveryCount"`
}

type command struct {
	ID          int      `json:"id"`
	Do          string   `json:"do"`
	Bootstrap   string   `json:"bootstrap"`
	Topic       string   `json:"topic"`
	Source      string   `json:"source"`
	Group       string   `json:"group"`
	Name        string   `json:"transactionalId"`
	Records     []record `json:"records"`
	First       record   `json:"first"`
	Second      record   `json:"second"`
	Codec       string   `json:"codec"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	MaxBytes    int32    `json:"maxBytes"`
	Count       int      `json:"count"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Timestamp   *int64   `json:"timestamp"`
	Committed   bool     `json:"committed"`
	Commit      bool     `json:"commit"`
	Member      int      `json:"member"`
	Assignor    string   `json:"assignor"`
	SessionMs   int      `json:"sessionMs"`
	HeartbeatMs int      `json:"heartbeatMs"`
	From        int      `json:"from"`
	Released    [][]byte `json:"released"`
	Settings    login    `json:"settings"`
}

type login struct {
	TLS         bool   `json:"tls"`
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	Name        string `json:"name"`
	Secret      string `json:"secret"`
	Token       string `json:"token"`
	IsToken     bool   `json:"isToken"`
}

type driver struct {
	bootstrap string
	login     []kgo.Opt
	lock      sync.Mutex
	members   map[int]*member
}

func main() {
	d := &driver{members: map[int]*member{}}
	answers := sync.Mutex{}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var asked command
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		go func() {
			answer := map[string]any{"id": asked.ID}
			if result, err := d.carryOut(asked); err != nil {
				answer["error"] = err.Error()
			} else {
				answer["ok"] = result
			}
			text, _ := json.Marshal(answer)
			answers.Lock()
			defer answers.Unlock()
			fmt.Println(string(text))
			if asked.Do == "exit" {
				os.Exit(0)
			}
		}()
	}
}

func (d *driver) carryOut(c command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch c.Do {
	case "start":
		d.bootstrap = c.Bootstrap
		return map[string]string{"version": version()}, nil
	case "login":
		return nil, d.logIn(c)
	case "produce":
		return nil, d.produce(ctx, c)
	case "read":
		return d.read(ctx, c)
	case "transact":
		return nil, d.transact(ctx, c, c.Records)
	case "zombie":
		return d.zombie(ctx, c)
	case "transform":
		return nil, d.transform(ctx, c)
	case "join", "joinConsumerGroup":
		return nil, d.join(c)
	case "joinShareGroup":
		return nil, d.share(c)
	case "state":
		return d.member(c).state(c.From)
	case "commit":
		return nil, d.member(c).client.CommitUncommittedOffsets(ctx)
	case "leave":
		d.member(c).close()
		return nil, nil
	case "exit":
		return nil, nil
	}
	return nil, errors.New("unknown command " + c.Do)
}

func version() string {
	built, _ := debug.ReadBuildInfo()
	for _, module := range built.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return module.Version
		}
	}
	return "unknown"
}

// Clients connect like this from now on.
func (d *driver) logIn(c command) error {
	d.bootstrap, d.login = c.Bootstrap, nil
	asked := c.Settings
	if asked.TLS {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM([]byte(asked.Authority))
		config := &tls.Config{RootCAs: trusted}
		if asked.Certificate != "" {
			own, err := tls.X509KeyPair([]byte(asked.Certificate), []byte(asked.Certificate))
			if err != nil {
				return err
			}
			config.Certificates = []tls.Certificate{own}
		}
		d.login = append(d.login, kgo.DialTLSConfig(config))
	}
	hashed := scram.Auth{User: asked.Name, Pass: asked.Secret, IsToken: asked.IsToken}
	switch asked.Mechanism {
	case "PLAIN":
		d.login = append(d.login, kgo.SASL(plain.Auth{User: asked.Name, Pass: asked.Secret}.AsMechanism()))
	case "SCRAM-SHA-256":
		d.login = append(d.login, kgo.SASL(hashed.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		d.login = append(d.login, kgo.SASL(hashed.AsSha512Mechanism()))
	case "OAUTHBEARER":
		d.login = append(d.login, kgo.SASL(oauth.Auth{Token: asked.Token}.AsMechanism()))
	}
	return nil
}

// --- messages

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{kgo.SeedBrokers(d.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	return kgo.NewClient(append(append(common, d.login...), options...)...)
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func (d *driver) produce(ctx context.Context, c command) error {
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[c.Acks]
	options := []kgo.Opt{
		kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec(c.Codec)), kgo.ProducerBatchMaxBytes(c.MaxBytes),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := d.client(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if d.login != nil {
		if err := client.Ping(ctx); err != nil { // a producer would go on trying
			return err
		}
	}
	return client.ProduceSync(ctx, toSend(c.Topic, c.Records)...).FirstErr()
}

func toSend(topic string, records []record) []*kgo.Record {
	made := make([]*kgo.Record, len(records))
	for i, each := range records {
		one := &kgo.Record{Topic: topic, Partition: 0, Key: each.Key, Value: each.Value}
		for _, header := range each.Headers {
			var value []byte
			if text, ok := header[1].(string); ok {
				value = decoded(text)
			}
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: header[0].(string), Value: value})
		}
		if each.Timestamp != nil {
			one.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		made[i] = one
	}
	return made
}

func decoded(text string) []byte {
	var data []byte
	quoted, _ := json.Marshal(text)
	_ = json.Unmarshal(quoted, &data)
	return data
}

func received(one *kgo.Record) record {
	headers := [][]any{}
	for _, header := range one.Headers {
		headers = append(headers, []any{header.Key, header.Value})
	}
	at := one.Timestamp.UnixMilli()
	return record{
		Value: one.Value, Key: one.Key, Headers: headers, Timestamp: &at, Partition: one.Partition, Offset: one.Offset,
		Delivery: one.DeliveryCount(),
	}
}

func (d *driver) read(ctx context.Context, c command) (any, error) {
	offset := kgo.NewOffset().At(c.Offset)
	if c.Timestamp != nil {
		offset = kgo.NewOffset().AfterMilli(*c.Timestamp)
	}
	options := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: offset}}),
		kgo.FetchMaxPartitionBytes(c.MaxBytes),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if c.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(found) < c.Count {
		fetches := client.PollRecords(ctx, c.Count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(found), c.Count, err)
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, received(one)) })
	}
	return found, nil
}

// --- transactions

func end(commit bool) kgo.TransactionEndTry {
	if commit {
		return kgo.TryCommit
	}
	return kgo.TryAbort
}

// While the coordinator ends the transaction of an earlier producer it asks for patience, which this client has not.
func (d *driver) begun(ctx context.Context, name, topic string, records []record) (*kgo.Client, error) {
	for {
		client, err := d.tried(ctx, name, topic, records)
		if !errors.Is(err, kerr.ConcurrentTransactions) || ctx.Err() != nil {
			return client, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (d *driver) tried(ctx context.Context, name, topic string, records []record) (*kgo.Client, error) {
	client, err := d.client(kgo.TransactionalID(name))
	if err != nil {
		return nil, err
	}
	if err := client.BeginTransaction(); err != nil {
		client.Close()
		return nil, err
	}
	if err := client.ProduceSync(ctx, toSend(topic, records)...).FirstErr(); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func (d *driver) transact(ctx context.Context, c command, records []record) error {
	client, err := d.begun(ctx, c.Name, c.Topic, records)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.EndTransaction(ctx, end(c.Commit))
}

func (d *driver) zombie(ctx context.Context, c command) (any, error) {
	first, err := d.begun(ctx, c.Name, c.Topic, []record{c.First})
	if err != nil {
		return nil, err
	}
	defer first.Close()
	c.Commit = true
	if err := d.transact(ctx, c, []record{c.Second}); err != nil {
		return nil, err
	}
	if err := first.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

func (d *driver) transform(ctx context.Context, c command) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(d.bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(c.Name),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	for left := c.Count; left > 0; {
		fetches := session.PollRecords(ctx, left)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d records are missing: %w", left, err)
		}
		for _, one := range fetches.Records() {
			left--
			sent := &kgo.Record{Topic: c.Topic, Partition: 0, Value: one.Value}
			if err := session.ProduceSync(ctx, sent).FirstErr(); err != nil {
				return err
			}
		}
	}
	committed, err := session.End(ctx, end(c.Commit))
	if err == nil && committed != c.Commit {
		err = errors.New("a rebalance made an abort of the commit")
	}
	return err
}

// --- members of groups

type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[string]map[int32]bool
	received []record
	released map[string]bool // nil outside of share groups
	failure  error
	ended    chan struct{}
}

func (d *driver) member(c command) *member {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.members[c.Member]
}

func (d *driver) join(c command) error {
	m := &member{assigned: map[string]map[int32]bool{}, received: []record{}, ended: make(chan struct{})}
	change := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for topic, partitions := range changed {
				for _, partition := range partitions {
					if m.assigned[topic] == nil {
						m.assigned[topic] = map[int32]bool{}
					}
					m.assigned[topic][partition] = owned
				}
			}
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	}
	if c.Do == "joinConsumerGroup" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		options = append(options,
			kgo.SessionTimeout(time.Duration(c.SessionMs)*time.Millisecond),
			kgo.HeartbeatInterval(time.Duration(c.HeartbeatMs)*time.Millisecond),
		)
	}
	if c.Assignor == "range" {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	return d.enter(c, m, options)
}

// It releases the first delivery of some values, and accepts all else.
func (d *driver) share(c command) error {
	m := &member{received: []record{}, released: map[string]bool{}, ended: make(chan struct{})}
	for _, value := range c.Released {
		m.released[string(value)] = true
	}
	return d.enter(c, m, []kgo.Opt{kgo.ShareGroup(c.Group), kgo.ConsumeTopics(c.Topic)})
}

func (d *driver) enter(c command, m *member, options []kgo.Opt) error {
	client, err := d.client(options...)
	if err != nil {
		return err
	}
	m.client = client
	d.lock.Lock()
	d.members[c.Member] = m
	d.lock.Unlock()
	go m.poll()
	return nil
}

func (m *member) poll() {
	defer close(m.ended)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.lock.Lock()
		if err := fetches.Err(); err != nil {
			m.failure = err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			m.received = append(m.received, received(one))
			if m.released != nil && m.released[string(one.Value)] && one.DeliveryCount() == 1 {
				one.Ack(kgo.AckRelease)
			} else if m.released != nil {
				one.Ack(kgo.AckAccept)
			}
		})
		m.lock.Unlock()
	}
}

func (m *member) state(from int) (any, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	places := [][]any{}
	for topic, partitions := range m.assigned {
		for partition, owned := range partitions {
			if owned {
				places = append(places, []any{topic, partition})
			}
		}
	}
	return map[string]any{"assignment": places, "received": m.received[from:]}, m.failure
}

func (m *member) close() {
	m.client.Close()
	<-m.ended
}
