// redsync with its defaults but for the lease: asks every 50 to 250 ms, 32 times; then it is asked again.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// take waits for the lock; nil if the context ends first.
func take(ctx context.Context, locks *redsync.Redsync, key string) *redsync.Mutex {
	for ctx.Err() == nil {
		mutex := locks.NewMutex(key, redsync.WithExpiry(30*time.Second))
		if mutex.LockContext(ctx) == nil {
			return mutex
		}
	}
	return nil
}

func give(mutex *redsync.Mutex) {
	if held, err := mutex.Unlock(); !held {
		panic(fmt.Sprint("not held any more: ", err))
	}
}

var output sync.Mutex

func say(words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(words...)
}

// values of a line: `loop tasks=64 keys=/path ..`.
type values map[string]string

func (v values) number(name string) int64 {
	number, err := strconv.ParseInt(v[name], 10, 64)
	if err != nil {
		panic(name + " is no number")
	}
	return number
}

func main() {
	var pools []pool.Pool
	for _, url := range strings.Split(os.Args[1], ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	locks := redsync.New(pools...)
	stays := map[string]*stay{}
	say("ready redsync 4.18.1")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		line := values{}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			line[name] = value
		}
		switch words[0] {
		case "loop":
			loop(locks, line)
		case "take":
			var patience time.Duration
			if line["patience_ms"] != "" {
				patience = time.Duration(line.number("patience_ms")) * time.Millisecond
			}
			stays[line["name"]] = begin(locks, line["name"], line["key"], patience)
		case "end":
			stays[line["name"]].end()
			delete(stays, line["name"])
		default:
			panic("not understood: " + words[0])
		}
	}
}
