package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// nic is what the kernel calls the machine's network interface.
const nic = "vec0"

// traffic is how many packets came and went, and how often the kernel set out to send some.
type traffic struct{ received, sent, tries uint64 }

func readTraffic() (t traffic, err error) {
	devices, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return t, err
	}
	softirqs, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(devices) + string(softirqs)) {
		name, numbers, _ := strings.Cut(line, ":")
		at := func(i int) (n uint64) {
			if f := strings.Fields(numbers); i < len(f) {
				n, _ = strconv.ParseUint(f[i], 10, 64)
			}
			return n
		}
		switch strings.TrimSpace(name) {
		case nic:
			t.received, t.sent = at(1), at(9)
		case "NET_TX":
			t.tries = at(0)
		}
	}
	return t, nil
}

// mendNetwork opens the interface again once it has stopped: after one write to the host's device that failed the driver neither sends
// nor receives, and the kernel tries to send for ever. A node that is lost by that is not the fault of what is tested.
func mendNetwork(ctx context.Context, g config.Guest) {
	before, _ := readTraffic()
	for ctx.Err() == nil {
		time.Sleep(2 * time.Second)
		now, err := readTraffic()
		stopped := err == nil && now.received == before.received && now.sent == before.sent && now.tries-before.tries > 100_000
		before = now
		if !stopped {
			continue
		}
		err = openNetwork(ctx, g)
		fmt.Printf("guest: %s had stopped after a write that failed; opened again: %v\n", nic, err)
	}
}

func openNetwork(ctx context.Context, g config.Guest) error {
	for _, argv := range [][]string{
		{"ip", "link", "set", nic, "down"},
		{"ip", "link", "set", nic, "up"},
		{"ip", "route", "replace", "default", "via", g.Gateway},
	} {
		if _, err := host.Run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}
