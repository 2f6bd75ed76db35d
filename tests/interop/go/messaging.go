package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

type feature struct {
	name  string
	check func(*cluster) error
}

// messaging is every message type and every way to consume, as far as this client has them.
var messaging = []feature{
	{"offset-reset-online", (*cluster).offsetResetOnline}, // those that wait longest begin first
	{"transaction-given-up", (*cluster).transactionsGivenUp},
	{"request-reply", (*cluster).requestReply},
	{"trace", (*cluster).trace},
	{"dead-letter", (*cluster).deadLetter},
	{"transaction-other-producer", (*cluster).transactionsOfOthers},
	{"transaction-check-back", (*cluster).transactionsChecked},
	{"transaction-commit-rollback", (*cluster).transactionsEnded},
	{"ordered-by-key", (*cluster).orderedByKey},
	{"ordered-globally", (*cluster).orderedGlobally},
	{"ordered-suspended", (*cluster).orderedSuspended},
	{"delay-levels", (*cluster).delayLevels},
	{"timer", (*cluster).timer},
	{"timer-too-far-refused", (*cluster).timerTooFar},
	{"retry", (*cluster).retried},
	{"dead-letter-at-once", (*cluster).deadLetterAtOnce},
	{"broadcast", (*cluster).broadcast},
	{"filter-tags", (*cluster).filterTags},
	{"filter-sql92", (*cluster).filterSQL},
	{"offset-first-start", (*cluster).offsetFirstStart},
	{"batch-with-properties", (*cluster).batchWithProperties},
	{"compressed-bodies", (*cluster).compressedBodies},
}

// runAll checks the features, some at once, prints a verdict for each and says whether all passed.
func (c *cluster) runAll(features []feature, wanted []string, atOnce int) bool {
	places := make(chan bool, atOnce)
	var group sync.WaitGroup
	var mutex sync.Mutex
	passed := true
	for _, each := range features {
		if len(wanted) > 0 && !contains(wanted, each.name) {
			continue
		}
		group.Add(1)
		places <- true
		go func(each feature) {
			defer group.Done()
			start := time.Now()
			err := each.check(c)
			<-places
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				passed = false
				fmt.Println("FAIL", each.name, strings.ReplaceAll(err.Error(), "\n", " "))
			} else {
				fmt.Printf("PASS %s (%.1f s)\n", each.name, time.Since(start).Seconds())
			}
		}(each)
	}
	group.Wait()
	return passed
}
