//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// Blocklist shuts clients out of a cluster: its OSDs refuse all that they send, and its metadata servers end their sessions.
type Blocklist struct{ cluster *Cluster }

var _ backend.Fencer = Blocklist{}

// BlocklistOf is that of a cluster.
func BlocklistOf(c *Cluster) Blocklist { return Blocklist{c} }

// shutOutFor is how long an entry lasts. It is renewed when half of it is over, so that it ends only where no agent of the
// pool has run for two weeks; or for an hour after a client took the lock of one that was shut out, for which that client
// writes an entry of its own, which replaces ours until the next look.
const shutOutFor = 30 * 24 * time.Hour

type blocklistCommand struct {
	Prefix    string      `json:"prefix"`
	Operation string      `json:"blocklistop"`
	Address   string      `json:"addr"`
	Expire    json.Number `json:"expire,omitempty"` // seconds, which the monitors take only with a point
}

// Fence shuts clients out, reads the blocklist to confirm it, and waits until all OSDs with volumes know of it: nothing that
// the clients send is written after it has returned.
func (b Blocklist) Fence(ctx context.Context, addresses []string) error {
	if err := b.edit(ctx, "add", addresses, json.Number(fmt.Sprintf("%.1f", shutOutFor.Seconds()))); err != nil {
		return err
	}
	has, err := b.Fenced(ctx)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !slices.Contains(has, a) {
			return fmt.Errorf("%w: the blocklist of the Ceph cluster does not have %s, which was added to it just now; it has %d clients", backend.ErrUnavailable, a, len(has))
		}
	}
	return b.awaitOSDs(ctx)
}

// Unfence lets clients in again.
func (b Blocklist) Unfence(ctx context.Context, addresses []string) error {
	return b.edit(ctx, "rm", addresses, "")
}

func (b Blocklist) edit(ctx context.Context, operation string, addresses []string, expire json.Number) error {
	for _, a := range addresses {
		if _, err := oneClient(a); err != nil {
			return err
		}
		command, err := json.Marshal(blocklistCommand{"osd blocklist", operation, a, expire})
		if err != nil {
			return err
		}
		what := fmt.Sprintf("osd blocklist %s %s", operation, a)
		if _, err := Call(ctx, b.cluster, what, func(conn *rados.Conn) (any, error) {
			_, _, err := conn.MonCommand(command)
			return nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Fenced lists the clients that are shut out for longer than half of shutOutFor. What stands for many clients is not listed.
func (b Blocklist) Fenced(ctx context.Context) ([]string, error) {
	return Call(ctx, b.cluster, "osd blocklist ls", func(conn *rados.Conn) ([]string, error) {
		return ShutOut(conn, time.Now().Add(shutOutFor/2))
	})
}

// ShutOut lists the clients that are shut out until a time at least.
func ShutOut(conn *rados.Conn, until time.Time) ([]string, error) {
	text, _, err := conn.MonCommand([]byte(`{"prefix":"osd blocklist ls","format":"json"}`))
	if err != nil {
		return nil, err
	}
	return blocklisted(text, until)
}

func blocklisted(text []byte, until time.Time) (all []string, err error) {
	const stamp = "2006-01-02T15:04:05.999999-0700"
	var entries []struct{ Addr, Until string }
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&entries); err != nil { // a second list, of ranges, may follow
		return nil, fmt.Errorf("%w: the blocklist of the Ceph cluster cannot be read: %w: %.200q", backend.ErrUnavailable, err, text)
	}
	for _, e := range entries {
		address, err := oneClient(e.Addr)
		if err != nil {
			continue // of all clients of a host, or of a server
		}
		end, err := time.Parse(stamp, e.Until)
		if err != nil {
			return nil, fmt.Errorf("%w: the blocklist of the Ceph cluster has %s until %s, which is no time: %w", backend.ErrUnavailable, backend.Quote(e.Addr), backend.Quote(e.Until), err)
		}
		if end.After(until) {
			all = append(all, address)
		}
	}
	return all, nil
}

// oneClient refuses what stands for more than one client: with the number 0, that would be all of a host, among which may be
// the cluster's own daemons.
func oneClient(address string) (string, error) {
	host, number, found := strings.Cut(address, "/")
	at, err := netip.ParseAddrPort(host)
	if err != nil || !found || at.Port() != 0 || number == "" || number[0] == '0' || strings.Trim(number, "0123456789") != "" {
		return "", fmt.Errorf("%w address %s of a client: it must be IP:0/NUMBER, such as 10.0.0.5:0/1234567", backend.ErrInvalid, backend.Quote(address))
	}
	return at.String() + "/" + number, nil
}
