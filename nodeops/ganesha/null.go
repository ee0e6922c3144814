package ganesha

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// probe calls procedure NULL of NFS 4 on a new connection: a server that answers accepts connections and has free
// threads.
func probe(ctx context.Context, address string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to the NFS server: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // aborts the calls below
	defer stop()
	id := rand.Uint32()
	_, err = conn.Write(nullCall(id))
	reply := make([]byte, nullReplySize)
	if err == nil {
		_, err = io.ReadFull(conn, reply)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the NFS server does not answer within %s: %w", limit, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("probing the NFS server: %w", err)
	case !bytes.Equal(reply, nullReply(id)):
		return fmt.Errorf("the NFS server refuses the NULL procedure with % x", reply)
	}
	return nil
}

// Constants of ONC RPC (RFC 5531) over TCP: each message is one fragment, marked as the last.
const (
	lastFragment  = 1 << 31
	rpcVersion    = 2
	nfsProgram    = 100003
	nfsVersion    = 4
	nullReplySize = 28
)

// nullCall has neither credentials nor a verifier.
func nullCall(id uint32) []byte {
	return words(lastFragment|40, id, 0, rpcVersion, nfsProgram, nfsVersion, 0, 0, 0, 0, 0)
}

// nullReply is the reply of an accepted, successful call.
func nullReply(id uint32) []byte {
	return words(lastFragment|24, id, 1, 0, 0, 0, 0)
}

func words(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}
