package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// call makes one request to the broker over a connection of its own: what an operator does and the client cannot.
func (c *cluster) call(code int, fields map[string]string, body []byte) ([]byte, error) {
	connection, err := net.DialTimeout("tcp", c.broker, patience)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	header, err := json.Marshal(map[string]interface{}{
		"code": code, "language": "JAVA", "version": 495, "opaque": 1, "flag": 0, "extFields": fields,
	})
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(header))), header...)
	if _, err := connection.Write(append(frame, body...)); err != nil {
		return nil, err
	}
	sizes := make([]byte, 8)
	if _, err := io.ReadFull(connection, sizes); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(sizes)-4)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(sizes[4:]) & 0xFFFFFF
	var head struct {
		Code   int    `json:"code"`
		Remark string `json:"remark"`
	}
	if err := json.Unmarshal(answer[:length], &head); err != nil {
		return nil, err
	}
	if head.Code != 0 {
		return nil, fmt.Errorf("request %d was answered with %d: %s", code, head.Code, head.Remark)
	}
	return answer[length:], nil
}

// setting reads one of the broker's settings.
func (c *cluster) setting(key string) (string, error) {
	text, err := c.call(26, nil, nil)
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, found := strings.Cut(line, "="); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("the broker has no setting %s", key)
}

// retryTopic makes a group's retry topic before its consumers start: they look only every 30 s whether there is one.
func (c *cluster) retryTopic(group string) error {
	_, err := c.call(17, map[string]string{
		"topic": "%RETRY%" + group, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil)
	return err
}

// find gives the message with a unique key, once there is one.
func (c *cluster) find(topic, id string) (*primitive.MessageExt, error) {
	var found []*primitive.MessageExt
	err := await(id+" in "+topic, func() bool {
		body, err := c.call(12, map[string]string{
			"topic": topic, "key": id, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9223372036854775807",
			"_UNIQUE_KEY_QUERY": "true",
		}, nil)
		if err == nil {
			found = primitive.DecodeMessage(body)
		}
		return len(found) > 0
	})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}
