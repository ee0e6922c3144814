package ganesha

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// answerer accepts one connection, reads the call, and sends an answer.
func answerer(t *testing.T, answer func(net.Conn, []byte)) (address string) {
	t.Helper()
	l := check.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		call := make([]byte, binary.BigEndian.Uint32(head)&^lastFragment)
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		answer(conn, call)
		_, _ = io.Copy(io.Discard, conn) // until the client closes it
	}()
	return l.Addr().String()
}

func TestProbe_ServerThatAnswersNULLIsHealthy(t *testing.T) {
	address := answerer(t, func(conn net.Conn, call []byte) {
		if want := words(0, 2, 100003, 4, 0, 0, 0, 0, 0); string(call[4:]) != string(want) {
			t.Errorf("the call is % x", call)
		}
		id := binary.BigEndian.Uint32(call)
		for _, b := range words(1<<31|24, id, 1, 0, 0, 0, 0) { // in as many fragments as possible
			check.Report(t, check.ErrorOf(conn.Write([]byte{b})))
		}
	})
	check.Report(t, probe(t.Context(), address, time.Minute))
}

func TestProbe_ServerThatAnswersOtherwiseIsNotHealthy(t *testing.T) {
	for name, answer := range map[string]func(net.Conn, []byte){
		"no such program": func(c net.Conn, call []byte) {
			_, _ = c.Write(words(1<<31|24, binary.BigEndian.Uint32(call), 1, 0, 0, 0, 1))
		},
		"another's answer": func(c net.Conn, call []byte) {
			_, _ = c.Write(words(1<<31|24, binary.BigEndian.Uint32(call)+1, 1, 0, 0, 0, 0))
		},
		"a hang-up": func(c net.Conn, _ []byte) { c.Close() },
		"half an answer": func(c net.Conn, call []byte) {
			_, _ = c.Write(words(1<<31|24, binary.BigEndian.Uint32(call)))
			c.Close()
		},
	} {
		if err := probe(t.Context(), answerer(t, answer), time.Minute); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want an error before the limit", name, err)
		}
	}
}

func TestProbe_SilentServerIsNotHealthyAfterTheLimit(t *testing.T) {
	address := answerer(t, func(net.Conn, []byte) {})
	err := probe(t.Context(), address, 50*time.Millisecond)
	check.Fails(t, err, context.DeadlineExceeded, "within 50ms")
}

func TestProbe_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address := answerer(t, func(net.Conn, []byte) { cancel() })
	check.Fails(t, probe(ctx, address, time.Minute), context.Canceled)
}
