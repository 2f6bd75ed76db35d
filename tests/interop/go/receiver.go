package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// delivery is one message as a consumer got it: the how manieth time, and when.
type delivery struct {
	body    string
	retries int32
	at      time.Time
	message *primitive.MessageExt
}

// receiver is a push consumer that asks a handler about each message and notes every delivery, good or bad.
type receiver struct {
	consumer   rocketmq.PushConsumer
	mutex      sync.Mutex
	deliveries []delivery
}

type handler func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult

func take(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
	return consumer.ConsumeSuccess
}

func everything() consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
}

func (c *cluster) receive(group, topic string, selector consumer.MessageSelector, handle handler, options ...consumer.Option) (*receiver, error) {
	r := &receiver{}
	var err error
	r.consumer, err = rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNsResolver(c.resolver),
		consumer.WithGroupName(group),
		consumer.WithInstance(c.fresh("instance")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	err = r.consumer.Subscribe(topic, selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			r.mutex.Lock()
			r.deliveries = append(r.deliveries, delivery{string(message.Body), message.ReconsumeTimes, time.Now(), message})
			r.mutex.Unlock()
			if outcome := handle(ctx, message); outcome != consumer.ConsumeSuccess {
				result = outcome
			}
		}
		return result, nil
	})
	if err != nil {
		return nil, err
	}
	return r, r.consumer.Start()
}

func (r *receiver) close() { r.consumer.Shutdown() }

// all gives every delivery so far, in the order they came.
func (r *receiver) all() []delivery {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]delivery(nil), r.deliveries...)
}

func (r *receiver) bodies() []string {
	bodies := []string{}
	for _, delivery := range r.all() {
		bodies = append(bodies, delivery.body)
	}
	return bodies
}

func (r *receiver) of(body string) []delivery {
	found := []delivery{}
	for _, delivery := range r.all() {
		if delivery.body == body {
			found = append(found, delivery)
		}
	}
	return found
}

func (r *receiver) has(body string) bool { return len(r.of(body)) > 0 }

func (r *receiver) await(count int) error {
	if err := await(fmt.Sprint(count, " deliveries"), func() bool { return len(r.all()) >= count }); err != nil {
		return fmt.Errorf("%w, got %q", err, r.bodies())
	}
	return nil
}

// expect waits for exactly these bodies in any order, and long enough to see whether more come.
func (r *receiver) expect(bodies ...string) error {
	if err := r.await(len(bodies)); err != nil {
		return err
	}
	time.Sleep(1500 * time.Millisecond)
	return equal("deliveries", counts(bodies), counts(r.bodies()))
}

func counts(bodies []string) map[string]int {
	counted := map[string]int{}
	for _, body := range bodies {
		counted[body]++
	}
	return counted
}

func equal(what string, expected, found interface{}) error {
	if fmt.Sprint(expected) != fmt.Sprint(found) {
		return fmt.Errorf("%s: expected %v, found %v", what, expected, found)
	}
	return nil
}

// first gives the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
