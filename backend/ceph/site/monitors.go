//go:build ceph

package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// greetsWithin is how long a monitor may take to accept a connection and to say which messenger it speaks.
const greetsWithin = 4 * time.Second

// address finds the addresses in what names a monitor: v2:HOST:PORT, or [v2:HOST:PORT,v1:HOST:PORT].
var address = regexp.MustCompile(`(v[12]):([^,]+:[0-9]+)`)

// The beginnings of what a monitor says first.
const (
	greetingV2 = "ceph v2"
	greetingV1 = "ceph v0"
)

// greet says why a monitor cannot be spoken to; nil if it can. One whose form is not known is left to Ceph's library.
func greet(ctx context.Context, monitor string) error {
	found := address.FindStringSubmatch(strings.Trim(monitor, "[]"))
	if found == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, greetsWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", found[2])
	if err != nil {
		return reason(err)
	}
	defer conn.Close()
	if until, limited := ctx.Deadline(); limited {
		if err := conn.SetReadDeadline(until); err != nil {
			return err
		}
	}
	said := make([]byte, len(greetingV2))
	if n, err := io.ReadFull(conn, said); err != nil {
		return fmt.Errorf("it accepts connections and does not answer as a monitor: %q, then %w", said[:n], reason(err))
	}
	speaks := map[bool]string{bytes.HasPrefix(said, []byte(greetingV2)): "v2", bytes.HasPrefix(said, []byte(greetingV1)): "v1"}[true]
	switch speaks {
	case "":
		return fmt.Errorf("it does not answer as a monitor: %q", said)
	case found[1]:
		return nil
	}
	return fmt.Errorf("the messenger there is %s and not %s", speaks, found[1])
}

// reason leaves out addresses: that of this end is another one each time, and would be news.
func reason(err error) error {
	if op, is := errors.AsType[*net.OpError](err); is {
		return op.Err
	}
	return err
}

// reach says which monitors cannot be spoken to. It is an error if none can.
func (c *Config) reach(ctx context.Context) (some []string, err error) {
	monitors := c.Ceph.Spoken()
	trouble := make([]error, len(monitors))
	var all sync.WaitGroup
	for i, m := range monitors {
		all.Go(func() { trouble[i] = greet(ctx, m) })
	}
	all.Wait()
	for i, m := range monitors {
		if trouble[i] != nil {
			some = append(some, fmt.Sprintf("%s (%v)", m, trouble[i]))
		}
	}
	if len(some) < len(monitors) {
		return some, nil
	}
	remedy := "check that they are those that `ceph mon dump` prints, and that this pod may connect to them"
	if c.Ceph.Secure {
		remedy += "; encryption is requested, which only the messenger v2 has"
	}
	return some, fmt.Errorf("%w: no monitor of the Ceph cluster can be reached: %s; %s", backend.ErrUnavailable, strings.Join(some, ", "), remedy)
}
