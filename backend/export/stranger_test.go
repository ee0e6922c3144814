package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// stranger is an NFS 4.1 client that sends arbitrary requests, forged handles above all. It connects from this host as
// root.
type stranger struct {
	t        *testing.T
	from     net.Addr // nil: any address of this host
	conn     net.Conn
	calls    uint32
	session  []byte
	sequence uint32
}

// The operations of RFC 8881 that a stranger uses, and the status codes after which it retries.
const (
	opCreate, opGetAttr, opGetHandle                        = 6, 9, 10
	opLookUp, opLookUpParent                                = 15, 16
	opPutHandle, opPutRoot, opRead, opReadDir               = 22, 24, 25, 26
	opRemove, opWrite, opExchangeID, opCreateSession        = 28, 38, 42, 43
	opSequence, opReclaimComplete                           = 53, 58
	statusOK, statusDelay, statusGrace               uint32 = 0, 10008, 10013
)

// packet is an XDR encoder.
type packet []byte

func (p packet) numbers(all ...uint32) packet {
	for _, n := range all {
		p = binary.BigEndian.AppendUint32(p, n)
	}
	return p
}

func (p packet) long(n uint64) packet { return binary.BigEndian.AppendUint64(p, n) }

// opaque appends the length and the padded bytes.
func (p packet) opaque(b []byte) packet {
	p = append(p.numbers(uint32(len(b))), b...)
	return append(p, make([]byte, -len(b)&3)...)
}

// reply is an XDR decoder. Beyond its end it reads zeros.
type reply []byte

func (r *reply) take(n int) []byte {
	n = min(n, len(*r))
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken
}

func (r *reply) number() uint32 {
	b := r.take(4)
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (r *reply) long() uint64 { return uint64(r.number())<<32 | uint64(r.number()) }

func (r *reply) opaque() []byte {
	n := int(r.number())
	b := r.take(n)
	r.take(-n & 3)
	return b
}

// op is an operation of a compound; read decodes its result unless it failed.
type op struct {
	code uint32
	args packet
	read func(*reply)
}

func putRoot() op                { return op{code: opPutRoot} }
func putHandle(handle []byte) op { return op{code: opPutHandle, args: packet{}.opaque(handle)} }
func lookUp(name string) op      { return op{code: opLookUp, args: packet{}.opaque([]byte(name))} }
func lookUpParent() op           { return op{code: opLookUpParent} }
func remove(name string) op {
	return op{code: opRemove, args: packet{}.opaque([]byte(name)), read: func(*reply) {}}
}

// makeDir creates a directory with no attributes.
func makeDir(name string) op {
	const directory = 2
	return op{opCreate, packet{}.numbers(directory).opaque([]byte(name)).numbers(0).opaque(nil), func(*reply) {}}
}

func getHandle(to *[]byte) op {
	return op{code: opGetHandle, read: func(r *reply) { *to = slices.Clone(r.opaque()) }}
}

// getAttr requests type, size and file id.
func getAttr(to *uint64) op {
	return op{opGetAttr, packet{}.numbers(1, 1<<1|1<<4|1<<20), func(r *reply) {
		for range r.number() {
			r.number()
		}
		attributes := reply(r.opaque())
		attributes.number()
		attributes.long()
		*to = attributes.long()
	}}
}

// readFile reads without an open, with the anonymous stateid.
func readFile(to *[]byte) op {
	args := packet{}.numbers(0, 0, 0, 0).long(0).numbers(4096)
	return op{opRead, args, func(r *reply) { r.number(); *to = slices.Clone(r.opaque()) }}
}

func writeFile(content string) op {
	return op{opWrite, packet{}.numbers(0, 0, 0, 0).long(0).numbers(2).opaque([]byte(content)), func(*reply) {}}
}

func readDir(to *[]string) op {
	return op{opReadDir, packet{}.long(0).long(0).numbers(4096, 16384, 1, 0), func(r *reply) {
		r.long()
		for r.number() == 1 {
			r.long()
			*to = append(*to, string(r.opaque()))
			for range r.number() {
				r.number()
			}
			r.opaque()
		}
	}}
}

// newStranger creates a session with the server at an address, once that answers.
func newStranger(t *testing.T, address string) *stranger {
	t.Helper()
	return newStrangerFrom(t, address, nil)
}

// newStrangerFrom connects from an address.
func newStrangerFrom(t *testing.T, address string, from net.Addr) *stranger {
	t.Helper()
	s := &stranger{t: t, from: from}
	err := s.connect(address)
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(time.Minute); err != nil; <-pause.C {
		if time.Now().After(end) {
			t.Fatal(err)
		}
		err = s.connect(address)
	}
	t.Cleanup(func() { s.conn.Close() })
	var client uint64
	var first uint32
	exchange := packet{}.long(uint64(time.Now().UnixNano())).opaque(fmt.Append(nil, t.Name(), from)).numbers(0, 0, 0)
	s.must(s.compound(op{opExchangeID, exchange, func(r *reply) { client, first = r.long(), r.number() }}))
	channel := []uint32{0, 65536, 65536, 4096, 16, 1, 0}
	create := packet{}.long(client).numbers(first, 0).numbers(channel...).numbers(channel...).numbers(0x40000000, 1, 0)
	s.must(s.compound(op{opCreateSession, create, func(r *reply) { s.session = slices.Clone(r.take(16)) }}))
	s.must(s.ask(op{code: opReclaimComplete, args: packet{}.numbers(0)}))
	return s
}

func (s *stranger) must(status uint32) {
	s.t.Helper()
	if status != statusOK {
		s.t.Fatalf("the server answers %d", status)
	}
}

// connect sends a NULL request, which fails if the server is shutting down.
func (s *stranger) connect(address string) (err error) {
	if s.conn, err = (&net.Dialer{LocalAddr: s.from}).DialContext(s.t.Context(), "tcp", address); err != nil {
		return err
	}
	if _, err := s.exchange(packet{}.numbers(s.calls, 0, 2, 100003, 4, 0, 0, 0, 0, 0)); err != nil {
		return errors.Join(err, s.conn.Close())
	}
	return nil
}

// within prepends the operation SEQUENCE.
func (s *stranger) within(ops ...op) []op {
	s.sequence++
	args := append(packet{}, s.session...).numbers(s.sequence, 0, 0, 0)
	return slices.Concat([]op{{opSequence, args, func(r *reply) { r.take(36) }}}, ops)
}

// ask sends a compound in the session and returns its status, which is that of the operation that failed.
func (s *stranger) ask(ops ...op) (status uint32) {
	s.t.Helper()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(time.Minute); ; <-pause.C {
		status = s.compound(s.within(ops...)...)
		if status != statusDelay && status != statusGrace || time.Now().After(end) {
			return status
		}
	}
}

func (s *stranger) call(ops ...op) packet {
	s.calls++
	credentials := packet{}.numbers(0).opaque([]byte("stranger")).numbers(0, 0, 0)
	call := packet{}.numbers(s.calls, 0, 2, 100003, 4, 1, 1).opaque(credentials).numbers(0, 0)
	call = call.opaque(nil).numbers(1, uint32(len(ops)))
	for _, o := range ops {
		call = append(call.numbers(o.code), o.args...)
	}
	return call
}

func (s *stranger) compound(ops ...op) (status uint32) {
	s.t.Helper()
	r, err := s.exchange(s.call(ops...))
	if err != nil {
		s.t.Fatalf("the server has left the conversation: %v", err)
	}
	if id, kind, denied := r.number(), r.number(), r.number(); id != s.calls || kind != 1 || denied != 0 {
		s.t.Fatalf("call %d is answered by %d of kind %d, denied %d", s.calls, id, kind, denied)
	}
	r.number()
	r.opaque()
	if accepted := r.number(); accepted != 0 {
		s.t.Fatalf("the server does not understand the call: %d", accepted)
	}
	status = r.number()
	r.opaque()
	for i := range min(int(r.number()), len(ops)) {
		r.number()
		if r.number() == statusOK && ops[i].read != nil {
			ops[i].read(&r)
		}
	}
	return status
}

// exchange sends one record and returns the next one, whose fragments it joins.
func (s *stranger) exchange(call packet) (r reply, err error) {
	const last = 1 << 31
	limit := s.conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = s.conn.Write(append(packet{}.numbers(last|uint32(len(call))), call...))
	if err := errors.Join(limit, err); err != nil {
		return nil, err
	}
	for size := uint32(0); size&last == 0; {
		head := make([]byte, 4)
		if _, err := io.ReadFull(s.conn, head); err != nil {
			return nil, err
		}
		size = binary.BigEndian.Uint32(head)
		part := make([]byte, size&^last)
		if _, err := io.ReadFull(s.conn, part); err != nil {
			return nil, err
		}
		r = append(r, part...)
	}
	return r, nil
}
