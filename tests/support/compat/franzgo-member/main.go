// A member of a group by franz-go, which prints what VerifiableConsumer of Apache Kafka prints: lines of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type consumed struct {
	place
	Count int   `json:"count"`
	First int64 `json:"minOffset"`
	Last  int64 `json:"maxOffset"`
}

var lock sync.Mutex

func tell(name string, fields map[string]any) {
	fields["name"] = name
	lock.Lock()
	defer lock.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(fields)
}

func tellChange(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		places := []place{}
		for topic, partitions := range changed {
			for _, partition := range partitions {
				places = append(places, place{topic, partition})
			}
		}
		tell(name, map[string]any{"partitions": places})
	}
}

func main() {
	bootstrap := flag.String("bootstrap-server", "", "host:port")
	topic := flag.String("topic", "", "what it reads")
	group := flag.String("group-id", "", "its group")
	protocol := flag.String("group-protocol", "classic", "classic or consumer")
	strategy := flag.String("assignment-strategy", "range", "range or cooperative-sticky")
	flag.Parse()
	options := []kgo.Opt{
		kgo.SeedBrokers(*bootstrap),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(tellChange("partitions_assigned")),
		kgo.OnPartitionsRevoked(tellChange("partitions_revoked")),
		kgo.OnPartitionsLost(tellChange("partitions_lost")),
	}
	switch {
	case *protocol == "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case *strategy == "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()), kgo.HeartbeatInterval(500*time.Millisecond))
	default:
		options = append(
			options, kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.HeartbeatInterval(500*time.Millisecond),
		)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	ends, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tell("startup_complete", map[string]any{})
	for ends.Err() == nil {
		step(ends, client)
	}
	client.CloseAllowingRebalance()
	tell("shutdown_complete", map[string]any{})
}

// Polls once, and commits what came before a rebalance may take it away.
func step(ends context.Context, client *kgo.Client) {
	defer client.AllowRebalance()
	fetches := client.PollFetches(ends)
	if ends.Err() == nil {
		fetches.EachError(func(_ string, _ int32, err error) {
			tell("failed", map[string]any{"success": false, "error": err.Error()})
		})
	}
	ranges := []consumed{}
	fetches.EachPartition(func(part kgo.FetchTopicPartition) {
		if count := len(part.Records); count > 0 {
			first, last := part.Records[0].Offset, part.Records[count-1].Offset
			ranges = append(ranges, consumed{place{part.Topic, part.Partition}, count, first, last})
		}
	})
	if len(ranges) == 0 {
		return
	}
	tell("records_consumed", map[string]any{"partitions": ranges})
	told := map[string]any{"success": true}
	if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
		told = map[string]any{"success": false, "error": err.Error()}
	}
	tell("offsets_committed", told)
}
