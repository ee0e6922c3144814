package ganesha

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// admin changes the exports of a running Ganesha over D-Bus. It is not safe for concurrent use.
type admin struct {
	conn  *dbus.Conn
	file  string        // from which Ganesha reads the block of an export
	limit time.Duration // timeout of a call
}

// Ganesha's name on the bus, and the D-Bus errors by which it refuses a request.
const (
	busName        = "org.ganesha.nfsd"
	invalidContent = "org.freedesktop.DBus.Error.InvalidFileContent"
	invalidArgs    = "org.freedesktop.DBus.Error.InvalidArgs"
)

// errRefused means that Ganesha runs and refuses the request.
var errRefused = errors.New("NFS-Ganesha refuses")

// connectAdmin connects to the bus. The connection is closed when ctx ends.
func connectAdmin(ctx context.Context, address string, c *Config) (*admin, error) {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connecting to the bus at %s: %w", address, err)
	}
	return &admin{conn: conn, file: filepath.Join(c.RunDir, "export.conf"), limit: c.Patience}, nil
}

// awaitGanesha waits until Ganesha is on the bus, or ctx ends.
func (a *admin) awaitGanesha(ctx context.Context) error {
	owners := make(chan *dbus.Signal, 8)
	a.conn.Signal(owners)
	defer a.conn.RemoveSignal(owners)
	changes := []dbus.MatchOption{
		dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, busName),
	}
	if err := a.conn.AddMatchSignalContext(ctx, changes...); err != nil {
		return fmt.Errorf("watching the bus: %w", err)
	}
	for {
		var owned bool
		if err := a.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, busName).Store(&owned); err != nil {
			return fmt.Errorf("finding NFS-Ganesha on the bus: %w", err)
		}
		if owned {
			return nil
		}
		select {
		case <-owners:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call calls a method of Ganesha, which may still be starting, until ctx ends.
func (a *admin) call(ctx context.Context, object, method string, args ...any) ([]any, error) {
	return a.callOf(ctx, object, strings.ToLower(object), method, args...)
}

// callOf is call for an interface that is not named like its object.
func (a *admin) callOf(ctx context.Context, object, of, method string, args ...any) ([]any, error) {
	o := a.conn.Object(busName, dbus.ObjectPath("/org/ganesha/nfsd/"+object))
	call := o.CallWithContext(ctx, "org.ganesha.nfsd."+of+"."+method, dbus.FlagNoAutoStart, args...)
	if call.Err == nil {
		return call.Body, nil
	}
	if refusal, ok := errors.AsType[dbus.Error](call.Err); ok && (refusal.Name == invalidContent || refusal.Name == invalidArgs) {
		said, _, _ := strings.Cut(refusal.Error(), ". Details:") // the details repeat what we wrote; Ganesha logs the reason
		return nil, fmt.Errorf("%w: %s: %s", errRefused, method, said)
	}
	return nil, fmt.Errorf("calling %s of NFS-Ganesha: %w", method, call.Err)
}

func (a *admin) change(method string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), a.limit) // after a call that was abandoned, it would be unknown what is exported
	defer cancel()
	_, err := a.call(ctx, "ExportMgr", method, args...)
	return err
}

func (a *admin) add(e Export) error    { return a.load("AddExport", e) }
func (a *admin) update(e Export) error { return a.load("UpdateExport", e) }

func (a *admin) load(method string, e Export) error {
	if err := os.WriteFile(a.file, []byte(exportBlock(e)), 0o600); err != nil {
		return fmt.Errorf("writing export %d: %w", e.ID, err)
	}
	return a.change(method, a.file, fmt.Sprintf("EXPORT(Export_Id=%d)", e.ID))
}

func (a *admin) remove(id uint16) error { return a.change("RemoveExport", id) }

// exportIDs returns the ids of all exports except the root.
func (a *admin) exportIDs(ctx context.Context) (ids []uint16, err error) {
	body, err := a.call(ctx, "ExportMgr", "ShowExports")
	if err != nil {
		return nil, err
	}
	for _, row := range rowsOf(body) {
		if id, ok := row[0].(uint16); ok && id != 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// clients returns the addresses of clients that have sent an NFS request since a time.
func (a *admin) clients(ctx context.Context, since time.Time) (addresses []string, err error) {
	body, err := a.call(ctx, "ClientMgr", "ShowClients")
	if err != nil {
		return nil, err
	}
	for _, row := range rowsOf(body) {
		address, last := parseClient(row)
		if address.IsValid() && !last.Before(since) {
			addresses = append(addresses, address.String())
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// rowsOf returns the list that follows the timestamp in a reply.
func rowsOf(body []any) [][]any {
	if len(body) < 2 {
		return nil
	}
	all, _ := body[1].([][]any)
	return slices.DeleteFunc(all, func(row []any) bool { return len(row) < 2 })
}

// parseClient parses a client: its address, the protocols it has used, and the time of its last request in seconds and
// nanoseconds.
func parseClient(row []any) (netip.Addr, time.Time) {
	text, _ := row[0].(string)
	address, err := netip.ParseAddr(text)
	last, ok := row[len(row)-1].([]any)
	if err != nil || !ok || len(last) != 2 {
		return netip.Addr{}, time.Time{}
	}
	seconds, _ := last[0].(uint64)
	nanoseconds, _ := last[1].(uint64)
	return address.Unmap(), time.Unix(int64(seconds), int64(nanoseconds))
}

// inGrace returns whether the grace period is running.
func (a *admin) inGrace(ctx context.Context) (is bool, err error) {
	body, err := a.call(ctx, "admin", "get_grace")
	if err == nil && len(body) > 0 {
		is, _ = body[0].(bool)
	}
	return is, err
}

// versions maps Ganesha's names of NFS versions.
var versions = map[string]string{"NFSv41": "4.1", "NFSv42": "4.2"}

// traffic returns what Ganesha has counted since its start for each used export.
func (a *admin) traffic(ctx context.Context) (map[exportWay]Traffic, error) {
	body, err := a.callOf(ctx, "ExportMgr", "exportstats", "GetNFSIO")
	if err != nil || len(body) < 4 {
		return nil, err
	}
	all := map[exportWay]Traffic{}
	counts, _ := body[3].([][]any)
	for _, row := range counts {
		if len(row) != 4 {
			continue
		}
		id, _ := row[0].(uint16)
		spoken, _ := row[1].(string)
		version := versions[spoken]
		all[exportWay{id, Way{version, false}}] = parseTraffic(row[2])
		all[exportWay{id, Way{version, true}}] = parseTraffic(row[3])
	}
	return all, nil
}

// parseTraffic parses requested bytes, transferred bytes, calls, errors, and two latencies.
func parseTraffic(row any) Traffic {
	numbers, _ := row.([]any)
	if len(numbers) != 6 {
		return Traffic{}
	}
	bytes, _ := numbers[1].(uint64)
	calls, _ := numbers[2].(uint64)
	failed, _ := numbers[3].(uint64)
	return Traffic{Operations: calls, Bytes: bytes, Errors: failed}
}
