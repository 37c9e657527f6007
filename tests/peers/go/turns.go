package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// turn has the times of request, grant and release; 0 for an event that did not happen.
type turn [4]int64

type plan struct {
	keys           []string
	first, step    int64
	hold, patience time.Duration
}

// loop runs goroutines that acquire a lock, hold it and release it, over and over.
func loop(locks lock, line values) {
	text, err := os.ReadFile(line["keys"])
	if err != nil {
		panic(err)
	}
	keys := strings.Fields(string(text))
	until := line.number("until")
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(until-now()))
	defer cancel()
	tasks := make([]chan []turn, line.number("tasks"))
	for task := range tasks {
		plan := plan{
			keys:     keys,
			first:    line.number("first") + int64(task)*line.number("stride"),
			step:     line.number("step"),
			hold:     time.Duration(line.number("hold_us")) * time.Microsecond,
			patience: time.Duration(line.number("patience_us")) * time.Microsecond,
		}
		tasks[task] = make(chan []turn, 1)
		go func() { tasks[task] <- turns(ctx, locks, plan) }()
	}
	file, err := os.Create(line["records"])
	if err != nil {
		panic(err)
	}
	records := bufio.NewWriter(file)
	for task, done := range tasks {
		for _, turn := range <-done {
			fmt.Fprintln(records, task, turn[0], turn[1], turn[2], turn[3])
		}
	}
	records.Flush()
	file.Close()
	say("looped")
}

func turns(ctx context.Context, locks lock, plan plan) []turn {
	var turns []turn
	for ctx.Err() == nil {
		number := plan.first + int64(len(turns))*plan.step
		key := plan.keys[number%int64(len(plan.keys))]
		asked := now()
		give := takePatiently(ctx, locks, key, plan, int64(len(turns)))
		if give == nil {
			turns = append(turns, turn{asked})
			continue
		}
		granted := now()
		if plan.hold > 0 {
			time.Sleep(plan.hold)
		}
		giving := now()
		give()
		turns = append(turns, turn{asked, granted, giving, now()})
	}
	return turns
}

func takePatiently(
	ctx context.Context, locks lock, key string, plan plan, number int64,
) func() {
	if plan.patience > 0 {
		// Different for each turn, up to the maximum, and the same in every run.
		patience := plan.patience * time.Duration((plan.first+number)*7919%1000) / 1000
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = limited
	}
	return locks.take(ctx, key)
}
