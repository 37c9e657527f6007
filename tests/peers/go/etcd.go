package main

import (
	"context"
	"sync"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcdLock is the mutex of etcd's client, with a session per holder or waiter: within a session all
// share the lock. Sessions are reused.
type etcdLock struct {
	client *etcd.Client
	mutex  sync.Mutex
	idle   []*concurrency.Session
}

func connectEtcd(address string) lock {
	client, err := etcd.New(etcd.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		panic(err)
	}
	return &etcdLock{client: client}
}

// session returns a session with a lease of 30 s, which it renews.
func (l *etcdLock) session() *concurrency.Session {
	if session := l.kept(); session != nil {
		return session
	}
	session, err := concurrency.NewSession(l.client, concurrency.WithTTL(30))
	if err != nil {
		panic(err)
	}
	return session
}

func (l *etcdLock) kept() *concurrency.Session {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	session := l.idle[last]
	l.idle = l.idle[:last]
	return session
}

func (l *etcdLock) keep(session *concurrency.Session) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.idle = append(l.idle, session)
}

func (l *etcdLock) take(ctx context.Context, key string) func() {
	session := l.session()
	mutex := concurrency.NewMutex(session, key)
	if err := mutex.Lock(ctx); err != nil {
		// The request's own clock may be ahead of the context's.
		if ctx.Err() == nil && status.Code(err) != codes.DeadlineExceeded {
			panic(err)
		}
		l.keep(session)
		return nil
	}
	return func() {
		if err := mutex.Unlock(context.Background()); err != nil {
			panic(err)
		}
		l.keep(session)
	}
}
