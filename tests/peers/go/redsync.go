package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncLock has the defaults except for the lease: it polls every 50 to 250 ms, 32 times; then
// the call is repeated.
type redsyncLock struct{ *redsync.Redsync }

// connectRedsync accepts an address, or quorum addresses separated by commas.
func connectRedsync(addresses string) lock {
	var pools []pool.Pool
	for _, url := range strings.Split(addresses, ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	return redsyncLock{redsync.New(pools...)}
}

func (l redsyncLock) take(ctx context.Context, key string) func() {
	for ctx.Err() == nil {
		mutex := l.NewMutex(key, redsync.WithExpiry(30*time.Second))
		if mutex.LockContext(ctx) == nil {
			return func() {
				if held, err := mutex.Unlock(); !held {
					panic(fmt.Sprint("not held any more: ", err))
				}
			}
		}
	}
	return nil
}
