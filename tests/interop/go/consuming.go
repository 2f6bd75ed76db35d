package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func (c *cluster) retried() error {
	topic, err := c.topicOf("retried", 1)
	if err != nil {
		return err
	}
	group := c.fresh("group")
	if err := c.retryTopic(group); err != nil {
		return err
	}
	m := message(topic, "T", "k", "fails twice")
	m.WithProperty("colour", "blue")
	sent, err := c.producer.SendSync(context.Background(), m)
	if err != nil {
		return err
	}
	r, err := c.receive(group, topic, everything(), func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		if m.ReconsumeTimes < 2 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.expect("fails twice", "fails twice", "fails twice"); err != nil {
		return err
	}
	for i, d := range r.all() {
		err := first(
			equal("tries", i, d.retries),
			equal("id", sent.MsgID, d.message.MsgId),
			equal("topic", topic, d.message.Topic),
			equal("tag", "T", d.message.GetTags()),
			equal("property", "blue", d.message.GetProperty("colour")),
		)
		if err == nil && i > 0 {
			err = equal("first id", sent.OffsetMsgID, d.message.GetProperty(primitive.PropertyOriginMessageId))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) deadLetter() error {
	topic, err := c.topicOf("dead", 1)
	if err != nil {
		return err
	}
	group := c.fresh("group")
	if err := c.retryTopic(group); err != nil {
		return err
	}
	sent, err := c.producer.SendSync(context.Background(), message(topic, "T", "k", "hopeless"))
	if err != nil {
		return err
	}
	r, err := c.receive(group, topic, everything(), func(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
		return consumer.ConsumeRetryLater
	}, consumer.WithMaxReconsumeTimes(2))
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.await(3); err != nil {
		return err
	}
	dead, err := c.find("%DLQ%"+group, sent.MsgID)
	if err != nil {
		return err
	}
	return first(
		equal("body", "hopeless", string(dead.Body)),
		equal("origin", topic, dead.GetProperty(primitive.PropertyRetryTopic)),
		equal("first id", sent.OffsetMsgID, dead.GetProperty(primitive.PropertyOriginMessageId)),
		r.expect("hopeless", "hopeless", "hopeless"),
	)
}

func (c *cluster) deadLetterAtOnce() error {
	topic, err := c.topicOf("straight", 1)
	if err != nil {
		return err
	}
	sent, err := c.producer.SendSync(context.Background(), message(topic, "T", "k", "poison"))
	if err != nil {
		return err
	}
	group := c.fresh("group")
	r, err := c.receive(group, topic, everything(), func(ctx context.Context, _ *primitive.MessageExt) consumer.ConsumeResult {
		if details, found := primitive.GetConcurrentlyCtx(ctx); found {
			details.DelayLevelWhenNextConsume = -1
		}
		return consumer.ConsumeRetryLater
	})
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := c.find("%DLQ%"+group, sent.MsgID); err != nil {
		return err
	}
	return r.expect("poison")
}

func (c *cluster) broadcast() error {
	topic, err := c.topic("broadcast")
	if err != nil {
		return err
	}
	group := c.fresh("group")
	fail := func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		if strings.HasSuffix(string(m.Body), "3") {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}
	expected := []string{}
	receivers := []*receiver{}
	for i := 0; i < 2; i++ {
		r, err := c.receive(group, topic, everything(), fail, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		defer r.close()
		receivers = append(receivers, r)
	}
	for i := 0; i < 6; i++ {
		expected = append(expected, fmt.Sprint("to all ", i))
	}
	if err := c.send(topic, "T", "to all ", 0, 6); err != nil {
		return err
	}
	return first(receivers[0].expect(expected...), receivers[1].expect(expected...))
}

func (c *cluster) filterTags() error {
	topic, err := c.topic("tags")
	if err != nil {
		return err
	}
	for _, tag := range []string{"Aa", "BB", "C", "D"} { // the first two have the same hash
		if err := c.send(topic, tag, tag+"-", 0, 1); err != nil {
			return err
		}
	}
	r, err := c.receive(c.fresh("group"), topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "Aa || C"}, take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.expect("Aa-0", "C-0"); err != nil {
		return err
	}
	if err := first(c.send(topic, "BB", "BB-", 1, 2), c.send(topic, "C", "C-", 1, 2)); err != nil { // while pulls are held
		return err
	}
	return r.expect("Aa-0", "C-0", "C-1")
}

func (c *cluster) filterSQL() error {
	topic, err := c.topic("sql")
	if err != nil {
		return err
	}
	properties := []map[string]string{
		{"number": "5", "name": "abc"}, {"number": "10", "name": "it's"}, {"number": "-2", "flag": "true"}, {"name": "xabcy"}, {},
	}
	for i, each := range properties {
		m := message(topic, "T", "k", fmt.Sprint("m-", i))
		m.WithProperties(each)
		if _, err := c.producer.SendSync(context.Background(), m); err != nil {
			return err
		}
	}
	expected := map[string][]string{
		"number > 4":                    {"m-0", "m-1"},
		"number NOT BETWEEN 5 AND 10":   {"m-2"},
		"name IN ('abc', 'it''s')":      {"m-0", "m-1"},
		"name IS NULL":                  {"m-2", "m-4"},
		"flag = TRUE OR name = 'xabcy'": {"m-2", "m-3"},
	}
	for expression, bodies := range expected {
		r, err := c.receive(c.fresh("group"), topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}, take)
		if err != nil {
			return err
		}
		defer r.close()
		if err := r.await(len(bodies)); err != nil {
			return fmt.Errorf("%s: %w", expression, err)
		}
		found := r.bodies()
		sort.Strings(found)
		if err := equal(expression, bodies, found); err != nil {
			return err
		}
	}
	return nil
}

// offsetResetOnline: an operator's reset reaches a consumer that runs.
func (c *cluster) offsetResetOnline() error {
	topic, err := c.topicOf("reset", 1)
	if err != nil {
		return err
	}
	group := c.fresh("group")
	if err := c.send(topic, "T", "first-", 0, 10); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	middle := time.Now().UnixMilli()
	time.Sleep(50 * time.Millisecond)
	if err := c.send(topic, "T", "second-", 0, 10); err != nil {
		return err
	}
	r, err := c.receive(group, topic, everything(), take)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.await(20); err != nil {
		return err
	}
	_, err = c.call(222, map[string]string{"topic": topic, "group": group, "timestamp": fmt.Sprint(middle), "isForce": "true"}, nil)
	if err != nil {
		return err
	}
	// The client drops the queue, waits ten seconds, and has it again when it next shares out the queues.
	if err := awaitFor(2*patience, "the second half again", func() bool { return len(r.all()) >= 30 }); err != nil {
		return fmt.Errorf("%w, got %q", err, r.bodies())
	}
	for i := 0; i < 10; i++ {
		err := first(
			equal("deliveries of the first half", 1, len(r.of(fmt.Sprint("first-", i)))),
			equal("deliveries of the second half", 2, len(r.of(fmt.Sprint("second-", i)))),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) offsetFirstStart() error {
	topic, err := c.topicOf("first", 1)
	if err != nil {
		return err
	}
	if err := c.send(topic, "T", "early-", 0, 5); err != nil {
		return err
	}
	r, err := c.receive(c.fresh("group"), topic, everything(), take, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	if err != nil {
		return err
	}
	defer r.close()
	return r.expect("early-0", "early-1", "early-2", "early-3", "early-4")
}

func (c *cluster) requestReply() error {
	topic, err := c.topicOf("request", 1)
	if err != nil {
		return err
	}
	asking, err := c.startProducer(c.fresh("producers"))
	if err != nil {
		return err
	}
	defer asking.Shutdown()
	r, err := c.receive(c.fresh("group"), topic, everything(), func(_ context.Context, m *primitive.MessageExt) consumer.ConsumeResult {
		reply, err := consumer.CreateReplyMessage(m, nil)
		if err == nil {
			reply.Body = []byte("re: " + string(m.Body)) // the client forgets the one it is given
			_, err = c.producer.SendSync(context.Background(), reply)
		}
		if err != nil {
			fmt.Println("reply:", err)
		}
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return err
	}
	defer r.close()
	// Brokers know whom to answer once this producer has sent something and told of itself.
	if err := c.sendWith(asking, topic, "first words"); err != nil {
		return err
	}
	if err := r.await(1); err != nil {
		return err
	}
	for i := 0; i < 3; i++ {
		var reply *primitive.Message
		err := await("a reply", func() bool {
			reply, err = asking.Request(context.Background(), 3*time.Second, message(topic, "T", "k", fmt.Sprint("question ", i)))
			return err == nil
		})
		if err != nil {
			return err
		}
		if err := equal("reply", fmt.Sprint("re: question ", i), string(reply.Body)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) sendWith(p rocketmq.Producer, topic, body string) error {
	_, err := p.SendSync(context.Background(), message(topic, "T", "k", body))
	return err
}

func (c *cluster) trace() error {
	topic, err := c.topicOf("trace", 1)
	if err != nil {
		return err
	}
	group := c.fresh("group")
	producers := c.fresh("producers")
	tracing := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{Access: primitive.Local, GroupName: c.fresh("tracers"), Resolver: c.resolver}
	}
	p, err := c.startProducer(producers, producer.WithTrace(tracing()))
	if err != nil {
		return err
	}
	defer p.Shutdown()
	r, err := c.receive(group, topic, everything(), take, consumer.WithTrace(tracing()))
	if err != nil {
		return err
	}
	defer r.close()
	sent, err := p.SendSync(context.Background(), message(topic, "T", "traced-key", "traced"))
	if err != nil {
		return err
	}
	if err := r.await(1); err != nil {
		return err
	}
	var traces string
	err = await("traces of both", func() bool {
		body, err := c.call(12, map[string]string{
			"topic": "RMQ_SYS_TRACE_TOPIC", "key": sent.MsgID, "maxNum": "32", "beginTimestamp": "0",
			"endTimestamp": "9223372036854775807", "_UNIQUE_KEY_QUERY": "false",
		}, nil)
		traces = ""
		if err == nil {
			for _, m := range primitive.DecodeMessage(body) {
				traces += string(m.Body)
			}
		}
		return strings.Contains(traces, producers) && strings.Contains(traces, group)
	})
	if err != nil {
		return fmt.Errorf("%w, found %q", err, traces)
	}
	return nil
}
