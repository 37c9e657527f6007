// Go locks. Usage: <program> ADDRESS [etcd]: redsync, or the mutex of etcd's client.
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
)

// lock is a compared lock: take acquires a key, and returns the function that releases it.
type lock interface {
	// take waits for the key; nil if the context ends first.
	take(ctx context.Context, key string) func()
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
	name, connect := "redsync 4.18.1", connectRedsync
	if len(os.Args) > 2 && os.Args[2] == "etcd" {
		name, connect = "etcd, client 3.7.3", connectEtcd
	}
	locks := connect(os.Args[1])
	stays := map[string]*stay{}
	say("ready", name)
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
