package main

import (
	"context"
	"time"
)

// stay is one lock, asked for and then held until it is told to end.
type stay struct {
	cancel context.CancelFunc
	over   chan struct{}
}

// begin asks; without a patience it waits without a limit.
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
