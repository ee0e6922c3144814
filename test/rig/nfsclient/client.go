// Package nfsclient is an NFS 4.1 client for tests. It needs no mount and no NFS client in the kernel.
package nfsclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Client sends arbitrary requests, forged handles too. It connects from this host as root.
type Client struct {
	t        testing.TB
	from     net.Addr // nil: any address of this host
	conn     net.Conn
	calls    uint32
	id       uint64 // by EXCHANGE_ID
	session  []byte
	sequence uint32
	last     uint32 // the operation whose result was the last of a compound: the one that failed, if any did
}

// New creates a session with the server at an address, once that answers. The server ends the session when it is idle for
// longer than the lease, and when the same test creates another client with the same source address.
func New(t testing.TB, address string) *Client {
	t.Helper()
	return NewFrom(t, address, nil)
}

// NewFrom connects from an address.
func NewFrom(t testing.TB, address string, from net.Addr) *Client {
	t.Helper()
	c := &Client{t: t, from: from}
	wait.For(t, "an NFS server", func() error { return c.connect(address) })
	t.Cleanup(func() { c.conn.Close() })
	var first uint32
	exchange := packet{}.long(uint64(time.Now().UnixNano())).opaque(fmt.Append(nil, t.Name(), from)).numbers(0, 0, 0)
	c.Must(c.compound(Op{opExchangeID, exchange, func(r *reply) { c.id, first = r.long(), r.number() }}))
	channel := []uint32{0, 65536, 65536, 4096, 16, 1, 0}
	create := packet{}.long(c.id).numbers(first, 0).numbers(channel...).numbers(channel...).numbers(0x40000000, 1, 0)
	c.Must(c.compound(Op{opCreateSession, create, func(r *reply) { c.session = slices.Clone(r.take(16)) }}))
	c.Must(c.Ask(Op{code: opReclaimComplete, args: packet{}.numbers(0)}))
	return c
}

// Must fails the test unless the status of the last compound is that of success.
func (c *Client) Must(status uint32) {
	c.t.Helper()
	if status != StatusOK {
		c.t.Fatalf("the server answers %d to %s", status, names[c.last])
	}
}

// connect sends a NULL request, which fails if the server is shutting down.
func (c *Client) connect(address string) (err error) {
	if c.conn, err = (&net.Dialer{LocalAddr: c.from}).DialContext(c.t.Context(), "tcp", address); err != nil {
		return err
	}
	if _, err := c.exchange(packet{}.numbers(c.calls, 0, 2, 100003, 4, 0, 0, 0, 0, 0)); err != nil {
		return errors.Join(err, c.conn.Close())
	}
	return nil
}

// within prepends the operation SEQUENCE.
func (c *Client) within(ops ...Op) []Op {
	c.sequence++
	args := append(packet{}, c.session...).numbers(c.sequence, 0, 0, 0)
	return slices.Concat([]Op{{opSequence, args, func(r *reply) { r.take(36) }}}, ops)
}

// Ask sends a compound in the session and returns its status, which is that of the operation that failed. It retries
// for a minute while the server requests that.
func (c *Client) Ask(ops ...Op) (status uint32) {
	c.t.Helper()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(time.Minute); ; <-pause.C {
		status = c.compound(c.within(ops...)...)
		if status != StatusDelay && status != StatusGrace || time.Now().After(end) {
			return status
		}
	}
}

// Try sends a compound in the session once. It fails if the server ends the connection, after which the client is of no
// use.
func (c *Client) Try(ops ...Op) (status uint32, err error) { return c.send(c.within(ops...)) }

// Write creates a file of a directory, as a path from the root of the server, with the attributes that the server selects,
// and writes the content, which must fit into one request. Of a longer file that exists, the end stays.
func (c *Client) Write(directory []string, name, content string) {
	c.t.Helper()
	var handle, stateid []byte
	var written uint32
	file := path.Join(slices.Concat(directory, []string{name})...)
	c.do("create", file, append(walk(directory), openNew(c.id, c.t.Name(), name, &stateid), GetHandle(&handle))...)
	c.do("create", file, PutHandle(handle), closeFile(stateid))
	c.do("write", file, PutHandle(handle), writeAll(content, &written))
	if int(written) != len(content) {
		c.t.Fatalf("write %s: the server has written %d bytes of %d", file, written, len(content))
	}
}

// Read returns the content of a file, which must fit into one reply.
func (c *Client) Read(directory []string, name string) string {
	c.t.Helper()
	file := path.Join(slices.Concat(directory, []string{name})...)
	var content []byte
	var whole bool
	c.do("read", file, append(walk(directory), LookUp(name), readAll(&content, &whole))...)
	if !whole {
		c.t.Fatalf("read %s: it is longer than %d bytes", file, most)
	}
	return string(content)
}

// walk goes from the root of the server to a directory.
func walk(directory []string) (way []Op) {
	way = []Op{PutRoot()}
	for _, name := range directory {
		way = append(way, LookUp(name))
	}
	return way
}

// do fails the test unless a compound succeeds.
func (c *Client) do(what, file string, ops ...Op) {
	c.t.Helper()
	if status := c.Ask(ops...); status != StatusOK {
		c.t.Fatalf("%s %s: the server answers %d to %s", what, file, status, names[c.last])
	}
}

func (c *Client) call(ops []Op) packet {
	c.calls++
	credentials := packet{}.numbers(0).opaque([]byte("stranger")).numbers(0, 0, 0)
	call := packet{}.numbers(c.calls, 0, 2, 100003, 4, 1, 1).opaque(credentials).numbers(0, 0)
	call = call.opaque(nil).numbers(1, uint32(len(ops)))
	for _, o := range ops {
		call = append(call.numbers(o.code), o.args...)
	}
	return call
}

// compound fails the test unless the server answers.
func (c *Client) compound(ops ...Op) (status uint32) {
	c.t.Helper()
	return check.Got(c.send(ops))(c.t)
}

func (c *Client) send(ops []Op) (status uint32, err error) {
	r, err := c.exchange(c.call(ops))
	if err != nil {
		return 0, fmt.Errorf("the server has left the conversation: %w", err)
	}
	if id, kind, denied := r.number(), r.number(), r.number(); id != c.calls || kind != 1 || denied != 0 {
		return 0, fmt.Errorf("call %d is answered by %d of kind %d, denied %d", c.calls, id, kind, denied)
	}
	r.number()
	r.opaque()
	if accepted := r.number(); accepted != 0 {
		return 0, fmt.Errorf("the server does not understand the call: %d", accepted)
	}
	status = r.number()
	r.opaque()
	for i := range min(int(r.number()), len(ops)) {
		c.last = ops[i].code
		r.number()
		if r.number() == StatusOK && ops[i].read != nil {
			ops[i].read(&r)
		}
	}
	return status, nil
}

// exchange sends one record and returns the next one, whose fragments it joins.
func (c *Client) exchange(call packet) (r reply, err error) {
	const last = 1 << 31
	limit := c.conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = c.conn.Write(append(packet{}.numbers(last|uint32(len(call))), call...))
	if err := errors.Join(limit, err); err != nil {
		return nil, err
	}
	for size := uint32(0); size&last == 0; {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c.conn, head); err != nil {
			return nil, err
		}
		size = binary.BigEndian.Uint32(head)
		part := make([]byte, size&^last)
		if _, err := io.ReadFull(c.conn, part); err != nil {
			return nil, err
		}
		r = append(r, part...)
	}
	return r, nil
}
