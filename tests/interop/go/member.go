package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// member belongs to a group that others belong to as well, until its input ends: it tells of every message, "GOT go-0 body".
func (c *cluster) member(topic, group string) error {
	tell := func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		fmt.Println("GOT go-0", string(message.Body))
		return consumer.ConsumeSuccess
	}
	r, err := c.receive(group, topic, everything(), tell)
	if err != nil {
		return err
	}
	defer r.close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
