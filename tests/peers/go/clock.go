package main

import "golang.org/x/sys/unix"

// now is the clock that all processes of the machine share, in ns.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}
