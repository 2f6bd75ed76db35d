// Drives a broker with Apache's own Go client and prints "PASS name" or "FAIL name why" for each feature.
// Usage: interop basics|messaging NAME_SERVER BROKER [FEATURE...], or interop member NAME_SERVER BROKER TOPIC GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

// basics is what every client does with every broker.
var basics = []feature{
	{"producer-sync", (*cluster).sendSync},
	{"producer-async", (*cluster).sendAsync},
	{"producer-one-way", (*cluster).sendOneWay},
	{"producer-batch", (*cluster).sendBatch},
	{"producer-compressed", (*cluster).sendCompressed},
	{"push-concurrent", (*cluster).pushConcurrent},
	{"push-orderly", (*cluster).pushOrderly},
	{"push-tag-filter", (*cluster).pushTags},
	{"push-offsets-survive-restart", (*cluster).pushResume},
	{"pull-consumer", (*cluster).pull},
}

// cluster is the system under test with a producer and an administrator connected to it.
type cluster struct {
	resolver primitive.NsResolver
	admin    admin.Admin
	producer rocketmq.Producer
	broker   string
	names    atomic.Int64
}

func main() {
	rlog.SetLogLevel("fatal")
	c, err := connect(os.Args[2], os.Args[3])
	if err != nil {
		fmt.Println("FAIL connect", err)
		os.Exit(1)
	}
	if os.Args[1] == "member" {
		if err := c.member(os.Args[4], os.Args[5]); err != nil {
			fmt.Println("FAIL member", err)
			os.Exit(1)
		}
		return
	}
	features, atOnce := basics, 1
	if os.Args[1] == "messaging" {
		features, atOnce = messaging, 6 // most of them wait
	}
	if !c.runAll(features, os.Args[4:], atOnce) {
		os.Exit(1)
	}
}

func connect(nameServer, broker string) (*cluster, error) {
	c := &cluster{resolver: primitive.NewPassthroughResolver([]string{nameServer}), broker: broker}
	var err error
	if c.admin, err = admin.NewAdmin(admin.WithResolver(c.resolver)); err != nil {
		return nil, err
	}
	c.producer, err = c.startProducer("interop-go-producer", producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	return c, err
}

// startProducer gives a running producer of the group, to be shut down by whoever asked for it.
func (c *cluster) startProducer(group string, options ...producer.Option) (rocketmq.Producer, error) {
	started, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(c.resolver),
		producer.WithGroupName(group),
		producer.WithInstanceName(c.fresh("instance")),
		producer.WithRetry(2),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	return started, started.Start()
}

// fresh gives a name that no other run on this broker has used.
func (c *cluster) fresh(what string) string {
	return fmt.Sprintf("InteropGo_%s_%x_%d", what, time.Now().UnixMilli(), c.names.Add(1))
}

// topic makes a topic with four queues.
func (c *cluster) topic(what string) (string, error) { return c.topicOf(what, 4) }

// topicOf makes a topic and waits until its route is known.
func (c *cluster) topicOf(what string, count int) (string, error) {
	topic := c.fresh(what)
	err := c.admin.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(c.broker),
		admin.WithReadQueueNums(count), admin.WithWriteQueueNums(count))
	if err != nil {
		return "", err
	}
	return topic, await("route of "+topic, func() bool {
		queues, err := c.admin.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(queues) == count
	})
}

func message(topic, tag, key, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{key})
}

func (c *cluster) send(topic, tag, prefix string, first, end int) error {
	for i := first; i < end; i++ {
		result, err := c.producer.SendSync(context.Background(), message(topic, tag, fmt.Sprint("k", i), fmt.Sprint(prefix, i)))
		if err != nil {
			return err
		}
		if result.Status != primitive.SendOK {
			return fmt.Errorf("send status %d", result.Status)
		}
	}
	return nil
}

// instance is one running consumer and what it was given, in the order it came.
type instance struct {
	consumer rocketmq.PushConsumer
	mutex    sync.Mutex
	received []*primitive.MessageExt
}

func (c *cluster) consume(group, topic, tags string, orderly bool) (*instance, error) {
	var err error
	in := &instance{}
	in.consumer, err = rocketmq.NewPushConsumer(
		consumer.WithNsResolver(c.resolver),
		consumer.WithGroupName(group),
		consumer.WithInstance(c.fresh("instance")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(orderly),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	err = in.consumer.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.mutex.Lock()
		defer in.mutex.Unlock()
		in.received = append(in.received, messages...)
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	return in, in.consumer.Start()
}

func (in *instance) bodies() map[string]int {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	bodies := map[string]int{}
	for _, message := range in.received {
		bodies[string(message.Body)]++
	}
	return bodies
}

// readBack consumes the whole topic and checks that exactly the bodies prefix0 .. prefix(count-1) are in it.
func (c *cluster) readBack(topic, prefix string, count int) error {
	in, err := c.consume(c.fresh("reader"), topic, "*", false)
	if err != nil {
		return err
	}
	defer in.consumer.Shutdown()
	return in.expect(prefix, 0, count)
}

func (in *instance) expect(prefix string, first, end int) error {
	err := await(fmt.Sprint(end-first, " messages"), func() bool { return len(in.bodies()) >= end-first })
	bodies := in.bodies()
	if err != nil {
		return fmt.Errorf("%w, got %d", err, len(bodies))
	}
	for i := first; i < end; i++ {
		if n := bodies[fmt.Sprint(prefix, i)]; n != 1 {
			return fmt.Errorf("%s%d came %d times", prefix, i, n)
		}
	}
	if len(bodies) != end-first {
		return fmt.Errorf("%d bodies instead of %d", len(bodies), end-first)
	}
	return nil
}

func await(what string, condition func() bool) error { return awaitFor(patience, what, condition) }

func awaitFor(most time.Duration, what string, condition func() bool) error {
	for deadline := time.Now().Add(most); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain for %s", most, what)
		}
	}
	return nil
}

func contains(list []string, wanted string) bool {
	for _, item := range list {
		if item == wanted {
			return true
		}
	}
	return false
}
