// Scenarios through franz-go, a Kafka client in Go. Usage: franz BOOTSTRAP PREFIX SCENARIO
// Each makes its own topics, whose names begin with PREFIX; it prints "ok" or says what it found, and exits with 1.
// `security` takes a PEM file with the trusted certificate, and the password of the user "app", who may write and read
// topics that begin with PREFIX, which there must be, and no others.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	bootstrap, prefix string
	ctx               context.Context
)

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	scenarios := map[string]func() error{
		"records": records, "groups": groups, "transactions": transactions, "admin": admin, "security": security,
	}
	if err := scenarios[os.Args[3]](); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	if err != nil {
		panic(err)
	}
	return made
}

func topic(name string, partitions int32) (string, error) {
	made := client()
	defer made.Close()
	name = prefix + name
	forever := "-1"
	_, err := kadm.NewClient(made).CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": &forever}, name)
	return name, err
}

func produce(to string, count int) error {
	made := client(kgo.DefaultProduceTopic(to))
	defer made.Close()
	batch := make([]*kgo.Record, count)
	for i := range batch {
		text := []byte(strconv.Itoa(i))
		headers := []kgo.RecordHeader{{Key: "n", Value: text}}
		batch[i] = &kgo.Record{Key: text, Value: text, Headers: headers}
	}
	return made.ProduceSync(ctx, batch...).FirstErr()
}

// Every value of a topic, sorted as numbers.
func consume(from string, count int, options ...kgo.Opt) ([]int, error) {
	options = append(options, kgo.ConsumeTopics(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	made := client(options...)
	defer made.Close()
	var found []int
	for len(found) < count {
		fetches := made.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return found, fmt.Errorf("after %d of %d records: %w", len(found), count, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			number, _ := strconv.Atoi(string(record.Value))
			found = append(found, number)
		})
	}
	sort.Ints(found)
	return found, nil
}

func isRange(found []int, count int) error {
	if len(found) != count {
		return fmt.Errorf("%d records, expected %d", len(found), count)
	}
	for i, number := range found {
		if i != number {
			return fmt.Errorf("record %d is %d", i, number)
		}
	}
	return nil
}

func records() error {
	name, err := topic("records", 3)
	if err != nil {
		return err
	}
	if err := produce(name, 5000); err != nil {
		return err
	}
	found, err := consume(name, 5000)
	if err != nil {
		return err
	}
	return isRange(found, 5000)
}

// Members come and go; every partition has one owner whenever the group is at rest, and every record is read.
func groups() error {
	name, err := topic("groups", 6)
	if err != nil {
		return err
	}
	admin := kadm.NewClient(client())
	defer admin.Close()
	group := prefix + "group"
	var members []*kgo.Client
	join := func() {
		member := client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(name), kgo.HeartbeatInterval(100*time.Millisecond),
			kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		members = append(members, member)
		go func() {
			for !member.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
			}
		}()
	}
	atRest := func(count int) error {
		for ctx.Err() == nil {
			described, err := admin.DescribeGroups(ctx, group)
			if err == nil && described[group].State == "Stable" && len(described[group].Members) == count {
				owners := map[int32]int{}
				for _, member := range described[group].Members {
					if assigned, is := member.Assigned.AsConsumer(); is {
						for _, part := range assigned.Topics {
							for _, number := range part.Partitions {
								owners[number]++
							}
						}
					}
				}
				alone := len(owners) == 6
				for _, count := range owners {
					alone = alone && count == 1
				}
				if alone {
					return nil
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		return fmt.Errorf("the group of %d did not come to rest", count)
	}
	join()
	if err := atRest(1); err != nil {
		return err
	}
	join()
	join()
	if err := atRest(3); err != nil {
		return err
	}
	members[0].Close()
	if err := atRest(2); err != nil {
		return err
	}
	if err := produce(name, 1000); err != nil {
		return err
	}
	for ctx.Err() == nil {
		lags, err := admin.Lag(ctx, group)
		if err == nil && lags[group].FetchErr == nil && lags[group].Lag.Total() == 0 && committed(admin, group) > 0 {
			break
		}
		for _, member := range members[1:] {
			_ = member.CommitUncommittedOffsets(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	members[1].Close()
	members[2].Close()
	return ctx.Err()
}

func committed(admin *kadm.Client, group string) int64 {
	var sum int64
	fetched, _ := admin.FetchOffsets(ctx, group)
	fetched.Each(func(offset kadm.OffsetResponse) { sum += offset.At })
	return sum
}

// Consume, transform, produce; every third transaction is aborted and done again: each record arrives once.
func transactions() error {
	from, err := topic("from", 2)
	if err != nil {
		return err
	}
	to, err := topic("to", 2)
	if err != nil {
		return err
	}
	if err := produce(from, 900); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(prefix+"tx"),
		kgo.ConsumerGroup(prefix+"copy"), kgo.ConsumeTopics(from), kgo.DefaultProduceTopic(to),
		kgo.FetchMaxPartitionBytes(2000), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer session.Close()
	copied := 0
	for round := 1; copied < 900 && ctx.Err() == nil; round++ {
		fetches := session.PollRecords(ctx, 100)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var batch []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			batch = append(batch, &kgo.Record{Key: record.Key, Value: record.Value})
		})
		if err := session.ProduceSync(ctx, batch...).FirstErr(); err != nil {
			return err
		}
		wanted := kgo.TransactionEndTry(round%3 != 0)
		done, err := session.End(ctx, wanted)
		if err != nil {
			return err
		}
		if done {
			copied += len(batch)
		}
	}
	found, err := consume(to, 900, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	return isRange(found, 900)
}

func admin() error {
	name, err := topic("admin", 2)
	if err != nil {
		return err
	}
	made := client()
	defer made.Close()
	admin := kadm.NewClient(made)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, name); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("a second topic of the same name: %v", err)
	}
	if err := produce(name, 100); err != nil {
		return err
	}
	value := "123456"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, name)
	if err != nil || altered[0].Err != nil {
		return fmt.Errorf("alter: %v %v", err, altered)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" && config.MaybeValue() != value {
			return fmt.Errorf("retention.ms is %s", config.MaybeValue())
		}
	}
	ends, err := admin.ListEndOffsets(ctx, name)
	if err != nil {
		return err
	}
	if _, err := admin.DeleteRecords(ctx, ends.Offsets()); err != nil {
		return err
	}
	starts, err := admin.ListStartOffsets(ctx, name)
	if err != nil {
		return err
	}
	total := int64(0)
	starts.Each(func(offset kadm.ListedOffset) { total += offset.Offset })
	if total != 100 {
		return fmt.Errorf("the log starts at %d after everything was deleted", total)
	}
	if _, err := admin.UpdatePartitions(ctx, 4, name); err != nil {
		return err
	}
	details, err := admin.ListTopics(ctx, name)
	if err != nil || len(details[name].Partitions) != 4 {
		return fmt.Errorf("partitions: %v %d", err, len(details[name].Partitions))
	}
	deleted, err := admin.DeleteTopics(ctx, name)
	if err != nil || deleted[name].Err != nil {
		return fmt.Errorf("delete: %v %v", err, deleted)
	}
	return nil
}

// A login by SCRAM over TLS: what may be done is done, what may not is refused, and a wrong password is told.
func security() error {
	pem, err := os.ReadFile(os.Args[4])
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	as := func(password string) []kgo.Opt {
		login := scram.Auth{User: "app", Pass: password}
		return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(login.AsSha512Mechanism())}
	}
	made := client(as(os.Args[5])...)
	defer made.Close()
	name := prefix + "go"
	for i := 0; i < 100; i++ {
		record := &kgo.Record{Topic: name, Value: []byte(strconv.Itoa(i))}
		if err := made.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	found, err := consume(name, 100, append(as(os.Args[5]), kgo.ConsumerGroup(prefix+"go"))...)
	if err == nil {
		err = isRange(found, 100)
	}
	if err != nil {
		return err
	}
	err = made.ProduceSync(ctx, &kgo.Record{Topic: "payroll", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("a write to payroll: %v", err)
	}
	stranger := client(as("guess")...)
	defer stranger.Close()
	if err := stranger.Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		return fmt.Errorf("a wrong password: %v", err)
	}
	return nil
}
