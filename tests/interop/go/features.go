package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func (c *cluster) sendSync() error {
	topic, err := c.topic("sync")
	if err != nil {
		return err
	}
	if err := c.send(topic, "T", "sync-", 0, 50); err != nil {
		return err
	}
	return c.readBack(topic, "sync-", 50)
}

func (c *cluster) sendAsync() error {
	topic, err := c.topic("async")
	if err != nil {
		return err
	}
	failures := make(chan error, 200)
	for i := 0; i < 200; i++ {
		err := c.producer.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil && result.Status != primitive.SendOK {
				err = fmt.Errorf("send status %d", result.Status)
			}
			failures <- err
		}, message(topic, "T", fmt.Sprint("k", i), fmt.Sprint("async-", i)))
		if err != nil {
			return err
		}
	}
	for i := 0; i < 200; i++ {
		select {
		case err := <-failures:
			if err != nil {
				return err
			}
		case <-time.After(patience):
			return fmt.Errorf("%d callbacks missing", 200-i)
		}
	}
	return c.readBack(topic, "async-", 200)
}

func (c *cluster) sendOneWay() error {
	topic, err := c.topic("oneway")
	if err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		if err := c.producer.SendOneWay(context.Background(), message(topic, "T", fmt.Sprint("k", i), fmt.Sprint("oneway-", i))); err != nil {
			return err
		}
	}
	return c.readBack(topic, "oneway-", 100)
}

func (c *cluster) sendBatch() error {
	topic, err := c.topic("batch")
	if err != nil {
		return err
	}
	var batch []*primitive.Message
	for i := 0; i < 40; i++ {
		batch = append(batch, message(topic, "T", fmt.Sprint("k", i), fmt.Sprint("batch-", i)))
	}
	result, err := c.producer.SendSync(context.Background(), batch...)
	if err != nil {
		return err
	}
	if ids := len(strings.Split(result.OffsetMsgID, ",")); ids != 40 {
		return fmt.Errorf("%d offset ids for 40 messages", ids)
	}
	return c.readBack(topic, "batch-", 40)
}

func (c *cluster) sendCompressed() error {
	topic, err := c.topic("compressed")
	if err != nil {
		return err
	}
	body := strings.Repeat("to be compressed by the client ", 2000)
	if _, err := c.producer.SendSync(context.Background(), message(topic, "T", "k", body+"0")); err != nil {
		return err
	}
	return c.readBack(topic, body, 1)
}

// pushConcurrent: one consumer, then a second of the same group; nothing is lost and both have a share.
func (c *cluster) pushConcurrent() error {
	topic, err := c.topic("concurrent")
	if err != nil {
		return err
	}
	group := c.fresh("group")
	if err := c.send(topic, "T", "c-", 0, 40); err != nil {
		return err
	}
	first, err := c.consume(group, topic, "*", false)
	if err != nil {
		return err
	}
	defer first.consumer.Shutdown()
	if err := first.expect("c-", 0, 40); err != nil {
		return err
	}
	second, err := c.consume(group, topic, "*", false)
	if err != nil {
		return err
	}
	defer second.consumer.Shutdown()
	sent := 40
	err = await("a share for the second", func() bool {
		if c.send(topic, "T", "c-", sent, sent+8) != nil {
			return false
		}
		sent += 8
		time.Sleep(100 * time.Millisecond)
		return len(second.bodies()) >= 8
	})
	if err != nil {
		return err
	}
	return await("every message", func() bool {
		all := first.bodies()
		for body := range second.bodies() {
			all[body]++
		}
		return len(all) == sent
	})
}

func (c *cluster) pushOrderly() error {
	topic, err := c.topic("orderly")
	if err != nil {
		return err
	}
	if err := c.send(topic, "T", "o-", 0, 200); err != nil {
		return err
	}
	in, err := c.consume(c.fresh("group"), topic, "*", true)
	if err != nil {
		return err
	}
	defer in.consumer.Shutdown()
	if err := in.expect("o-", 0, 200); err != nil {
		return err
	}
	next := map[int]int64{}
	for _, message := range in.received {
		if message.QueueOffset != next[message.Queue.QueueId] {
			return fmt.Errorf("queue %d gave %d instead of %d", message.Queue.QueueId, message.QueueOffset, next[message.Queue.QueueId])
		}
		next[message.Queue.QueueId]++
	}
	return nil
}

func (c *cluster) pushTags() error {
	topic, err := c.topic("tags")
	if err != nil {
		return err
	}
	for i := 0; i < 20; i++ {
		for _, tag := range []string{"Aa", "BB", "C", "D"} { // the first two have the same hash
			if err := c.send(topic, tag, tag+"-", i, i+1); err != nil {
				return err
			}
		}
	}
	in, err := c.consume(c.fresh("group"), topic, "Aa", false)
	if err != nil {
		return err
	}
	defer in.consumer.Shutdown()
	return in.expect("Aa-", 0, 20)
}

func (c *cluster) pushResume() error {
	topic, err := c.topic("resume")
	if err != nil {
		return err
	}
	group := c.fresh("group")
	if err := c.send(topic, "T", "r-", 0, 40); err != nil {
		return err
	}
	first, err := c.consume(group, topic, "*", false)
	if err != nil {
		return err
	}
	if err := first.expect("r-", 0, 40); err != nil {
		return err
	}
	if err := first.consumer.Shutdown(); err != nil {
		return err
	}
	if err := c.send(topic, "T", "r-", 40, 60); err != nil {
		return err
	}
	again, err := c.consume(group, topic, "*", false)
	if err != nil {
		return err
	}
	defer again.consumer.Shutdown()
	return again.expect("r-", 40, 60)
}

func (c *cluster) pull() error {
	topic, err := c.topic("pull")
	if err != nil {
		return err
	}
	if err := c.send(topic, "T", "p-", 0, 40); err != nil {
		return err
	}
	puller, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(c.resolver),
		consumer.WithGroupName(c.fresh("group")),
		consumer.WithInstance(c.fresh("instance")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	if err := puller.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return err
	}
	if err := puller.Start(); err != nil {
		return err
	}
	defer puller.Shutdown()
	bodies := map[string]bool{}
	return await("40 messages", func() bool {
		result, err := puller.Poll(context.Background(), time.Second)
		if err == nil {
			for _, message := range result.GetMsgList() {
				bodies[string(message.Body)] = true
			}
			puller.ACK(context.Background(), result, consumer.ConsumeSuccess)
		}
		return len(bodies) == 40
	})
}
