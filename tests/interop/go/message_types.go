package main

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// late is how late the machine may make us; the broker's own punctuality is measured elsewhere.
const late = 10 * time.Second

func (c *cluster) orderedByKey() error {
	topic, err := c.topic("by_key")
	if err != nil {
		return err
	}
	hashing, err := c.startProducer(c.fresh("producers"), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	defer hashing.Shutdown()
	r, err := c.receive(c.fresh("group"), topic, everything(), take, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	defer r.close()
	for step := 0; step < 12; step++ {
		for order := 0; order < 10; order++ {
			m := message(topic, "T", "k", fmt.Sprint(order, ":", step)).WithShardingKey(fmt.Sprint("order-", order))
			if _, err := hashing.SendSync(context.Background(), m); err != nil {
				return err
			}
		}
	}
	if err := r.await(120); err != nil {
		return err
	}
	next := map[string]int{}
	for _, body := range r.bodies() {
		order, step, _ := strings.Cut(body, ":")
		if step != strconv.Itoa(next[order]) {
			return fmt.Errorf("order %s gave step %s instead of %d", order, step, next[order])
		}
		next[order]++
	}
	return nil
}

func (c *cluster) orderedGlobally() error {
	topic, err := c.topicOf("global", 1)
	if err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	defer r.close()
	if err := c.send(topic, "T", "g-", 0, 60); err != nil {
		return err
	}
	if err := r.await(60); err != nil {
		return err
	}
	for i, body := range r.bodies() {
		if body != fmt.Sprint("g-", i) {
			return fmt.Errorf("%s came as number %d", body, i)
		}
	}
	return nil
}

func (c *cluster) orderedSuspended() error {
	topic, err := c.topicOf("suspended", 1)
	if err != nil {
		return err
	}
	if err := c.send(topic, "T", "", 0, 4); err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		if string(m.Body) == "1" && m.ReconsumeTimes < 2 {
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeSuccess
	}, consumer.WithConsumerOrder(true), consumer.WithSuspendCurrentQueueTimeMillis(300*time.Millisecond))
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.await(6); err != nil {
		return err
	}
	return equal("order", []string{"0", "1", "1", "1", "2", "3"}, r.bodies())
}

func (c *cluster) delayLevels() error {
	topic, err := c.topic("levels")
	if err != nil {
		return err
	}
	delays, err := c.delays()
	if err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	due, sent := map[string]time.Time{}, map[string]*primitive.SendResult{}
	for _, level := range []int{1, 2, 5, 18, 40} {
		m := message(topic, "Later", "k", fmt.Sprint("level-", level)).WithDelayTimeLevel(level)
		m.WithProperty("colour", "blue")
		index := level
		if index > len(delays) {
			index = len(delays) // beyond the last is the last
		}
		due[string(m.Body)] = time.Now().Add(delays[index-1])
		if sent[string(m.Body)], err = c.producer.SendSync(context.Background(), m); err != nil {
			return err
		}
	}
	if err := r.await(5); err != nil {
		return err
	}
	for _, d := range r.all() {
		err := first(
			onTime(d, due[d.body], 0),
			equal("id", sent[d.body].MsgID, d.message.MsgId),
			equal("topic", topic, d.message.Topic),
			equal("queue", sent[d.body].MessageQueue.QueueId, d.message.Queue.QueueId),
			equal("tag", "Later", d.message.GetTags()),
			equal("property", "blue", d.message.GetProperty("colour")),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// timer: this client knows no timers, but their properties work with any.
func (c *cluster) timer() error {
	topic, err := c.topic("timer")
	if err != nil {
		return err
	}
	precision, err := c.setting("timerPrecisionMs")
	if err != nil {
		return err
	}
	early, err := strconv.Atoi(precision)
	if err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	now := time.Now()
	due := map[string]time.Time{
		"TIMER_DELAY_SEC": now.Add(2 * time.Second), "TIMER_DELAY_MS": now.Add(1234 * time.Millisecond),
		"TIMER_DELIVER_MS": now.Add(2345 * time.Millisecond),
	}
	values := map[string]string{
		"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "1234", "TIMER_DELIVER_MS": fmt.Sprint(due["TIMER_DELIVER_MS"].UnixMilli()),
	}
	for property, value := range values {
		m := message(topic, "T", "k", property)
		m.WithProperty(property, value)
		if _, err := c.producer.SendSync(context.Background(), m); err != nil {
			return err
		}
	}
	if err := r.await(3); err != nil {
		return err
	}
	for _, d := range r.all() {
		if err := onTime(d, due[d.body], time.Duration(early)*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) timerTooFar() error {
	topic, err := c.topic("too_far")
	if err != nil {
		return err
	}
	m := message(topic, "T", "k", "in a year")
	m.WithProperty("TIMER_DELAY_SEC", fmt.Sprint(365*24*3600))
	if _, err := c.producer.SendSync(context.Background(), m); err == nil {
		return fmt.Errorf("a delay of a year was accepted")
	}
	return nil
}

func onTime(d delivery, due time.Time, early time.Duration) error {
	if after := d.at.Sub(due); after < -early-time.Millisecond || after > late {
		return fmt.Errorf("%s came %v after its time", d.body, after)
	}
	return nil
}

// delays gives the delays of the levels, the first level's first.
func (c *cluster) delays() ([]time.Duration, error) {
	text, err := c.setting("messageDelayLevel")
	if err != nil {
		return nil, err
	}
	delays := []time.Duration{}
	for _, level := range strings.Fields(text) {
		delay, err := time.ParseDuration(level)
		if err != nil {
			return nil, err
		}
		delays = append(delays, delay)
	}
	return delays, nil
}

// decider decides by what a body begins with, first when sending and then, when asked, by what it ends with.
type decider struct {
	producer rocketmq.TransactionProducer
	topic    string
	mutex    sync.Mutex
	checks   []*primitive.MessageExt
	sent     map[string]*primitive.TransactionSendResult
}

func (c *cluster) decide(group, topic string) (*decider, error) {
	d := &decider{topic: topic, sent: map[string]*primitive.TransactionSendResult{}}
	var err error
	d.producer, err = rocketmq.NewTransactionProducer(d, producer.WithNsResolver(c.resolver),
		producer.WithGroupName(group), producer.WithInstanceName(c.fresh("instance")))
	if err != nil {
		return nil, err
	}
	return d, d.producer.Start()
}

func decision(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d *decider) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return decision(strings.Split(string(m.Body), "-")[0])
}

func (d *decider) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.checks = append(d.checks, m)
	words := strings.Split(string(m.Body), "-")
	return decision(words[len(words)-1])
}

func (d *decider) send(bodies ...string) error {
	for _, body := range bodies {
		m := message(d.topic, "Paid", "key-"+body, body)
		m.WithProperty("colour", "blue")
		result, err := d.producer.SendMessageInTransaction(context.Background(), m)
		if err != nil {
			return err
		}
		d.sent[body] = result
	}
	return nil
}

func (d *decider) checked() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	bodies := []string{}
	for _, check := range d.checks {
		bodies = append(bodies, string(check.Body))
	}
	return bodies
}

func (c *cluster) transactionsEnded() error {
	topic, err := c.topic("transaction")
	if err != nil {
		return err
	}
	d, err := c.decide(c.fresh("producers"), topic)
	if err != nil {
		return err
	}
	defer d.producer.Shutdown()
	if err := d.send("commit-0", "rollback-0", "commit-1", "rollback-1", "commit-2"); err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.expect("commit-0", "commit-1", "commit-2"); err != nil {
		return err
	}
	for _, got := range r.all() {
		err := first(
			equal("topic", topic, got.message.Topic),
			equal("id", d.sent[got.body].MsgID, got.message.MsgId),
			equal("queue", d.sent[got.body].MessageQueue.QueueId, got.message.Queue.QueueId),
			equal("property", "blue", got.message.GetProperty("colour")),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) transactionsChecked() error {
	topic, err := c.topic("checked")
	if err != nil {
		return err
	}
	d, err := c.decide(c.fresh("producers"), topic)
	if err != nil {
		return err
	}
	defer d.producer.Shutdown()
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := d.send("unknown-then-commit", "unknown-then-rollback"); err != nil {
		return err
	}
	if err := await("both checks", func() bool { return len(counts(d.checked())) == 2 }); err != nil {
		return err
	}
	if err := r.expect("unknown-then-commit"); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, check := range d.checks {
		err := first(
			equal("topic of the check", topic, check.Topic),
			equal("transaction of the check", d.sent[string(check.Body)].TransactionID, check.TransactionId),
			equal("key of the check", "key-"+string(check.Body), check.GetKeys()),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) transactionsGivenUp() error {
	topic, err := c.topic("given_up")
	if err != nil {
		return err
	}
	most, err := c.setting("transactionCheckMax")
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(most)
	if err != nil {
		return err
	}
	d, err := c.decide(c.fresh("producers"), topic)
	if err != nil {
		return err
	}
	defer d.producer.Shutdown()
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := d.send("unknown-for-ever"); err != nil {
		return err
	}
	// Apache's broker counts questions that found nobody to answer; how often ours asks, the other programs see.
	seen, since := 0, time.Now()
	quiet := func() bool {
		if now := len(d.checked()); now != seen {
			seen, since = now, time.Now()
		}
		return seen > 0 && time.Since(since) > 3*time.Second
	}
	if err := await("the checks", quiet); err != nil {
		return err
	}
	if seen > count {
		return fmt.Errorf("%d checks, %d at most", seen, count)
	}
	return r.expect()
}

func (c *cluster) transactionsOfOthers() error {
	topic, err := c.topic("restarted")
	if err != nil {
		return err
	}
	group := c.fresh("producers")
	one, err := c.decide(group, topic)
	if err != nil {
		return err
	}
	err = one.send("unknown-then-commit")
	one.producer.Shutdown()
	if err != nil {
		return err
	}
	other, err := c.decide(group, topic)
	if err != nil {
		return err
	}
	defer other.producer.Shutdown()
	if err := other.send("commit-0"); err != nil { // a producer is known to brokers once it has sent
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	return r.expect("commit-0", "unknown-then-commit")
}

func (c *cluster) batchWithProperties() error {
	topic, err := c.topic("batch_properties")
	if err != nil {
		return err
	}
	batch, even := []*primitive.Message{}, []string{}
	for i := 0; i < 10; i++ {
		m := message(topic, []string{"Even", "Odd"}[i%2], fmt.Sprint("key-", i), fmt.Sprint("batch-", i))
		m.WithProperty("number", strconv.Itoa(i))
		batch = append(batch, m)
		if i%2 == 0 {
			even = append(even, string(m.Body))
		}
	}
	if _, err := c.producer.SendSync(context.Background(), batch...); err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "Even"}, take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.expect(even...); err != nil {
		return err
	}
	for _, d := range r.all() {
		number := d.message.GetProperty("number")
		if err := first(equal("body", "batch-"+number, d.body), equal("key", "key-"+number, d.message.GetKeys())); err != nil {
			return err
		}
	}
	return nil
}

// compressedBodies: this client knows zlib only.
func (c *cluster) compressedBodies() error {
	topic, err := c.topic("compression")
	if err != nil {
		return err
	}
	noise := make([]byte, 10_000)
	rand.New(rand.NewSource(1)).Read(noise)
	bodies := []string{strings.Repeat("to be compressed by the client ", 1000), string(noise)}
	for _, body := range bodies {
		if _, err := c.producer.SendSync(context.Background(), message(topic, "T", "k", body)); err != nil {
			return err
		}
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.await(2); err != nil {
		return fmt.Errorf("%d of 2 bodies came", len(r.all()))
	}
	if !r.has(bodies[0]) || !r.has(bodies[1]) {
		return fmt.Errorf("a body has changed")
	}
	return nil
}
