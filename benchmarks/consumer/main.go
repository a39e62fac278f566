// A fast Kafka consumer (franz-go), so that the broker and not the client is what a fetch benchmark measures.
// Usage: consumer BOOTSTRAP TOPIC RECORDS  ->  one JSON line {"records": n, "bytes": b, "seconds": s}
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: consumer BOOTSTRAP TOPIC RECORDS")
		os.Exit(2)
	}
	wanted, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(50<<20),
		kgo.FetchMaxPartitionBytes(8<<20),
	)
	check(err)
	defer client.Close()
	context, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	var records, bytes int64
	started := time.Now()
	for records < wanted {
		fetches := client.PollFetches(context)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			records++
			bytes += int64(len(record.Key) + len(record.Value))
		})
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"records": records, "bytes": bytes, "seconds": time.Since(started).Seconds(),
	}))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}
