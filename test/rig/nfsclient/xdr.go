package nfsclient

import "encoding/binary"

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

// bitmap skips a list of numbers.
func (r *reply) bitmap() {
	for range r.number() {
		r.number()
	}
}
