package main

import (
	"context"
	"time"
)

// stay is a lock, requested and then held until the command to end it.
type stay struct {
	cancel context.CancelFunc
	over   chan struct{}
}

// begin requests the lock; without a patience it waits without a limit.
func begin(locks lock, name, key string, patience time.Duration) *stay {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		asked := now()
		limited := ctx
		if patience > 0 {
			var stop context.CancelFunc
			limited, stop = context.WithTimeout(ctx, patience)
			defer stop()
		}
		give := locks.take(limited, key)
		if give == nil {
			say("cancelled", name)
			return
		}
		say("taken", name, asked, now())
		<-ctx.Done()
		giving := now()
		give()
		say("given", name, giving, now())
	}()
	return &stay{cancel, over}
}

func (s *stay) end() {
	s.cancel()
	<-s.over
}
