package nfsclient

import "slices"

// The status codes of RFC 8881 that tests distinguish. Ask retries after StatusDelay and StatusGrace.
const (
	StatusOK            uint32 = 0
	StatusNotPermitted  uint32 = 1
	StatusNoEntry       uint32 = 2
	StatusAccess        uint32 = 13
	StatusReadOnly      uint32 = 30
	StatusStale         uint32 = 70
	StatusDelay         uint32 = 10008
	StatusGrace         uint32 = 10013
	StatusWrongSecurity uint32 = 10016
)

// The operations of RFC 8881 that are in use.
const (
	opClose, opCreate, opGetAttr, opGetHandle        = 4, 6, 9, 10
	opLookUp, opLookUpParent, opOpen                 = 15, 16, 18
	opPutHandle, opPutRoot, opRead, opReadDir        = 22, 24, 25, 26
	opRemove, opWrite, opExchangeID, opCreateSession = 28, 38, 42, 43
	opSequence, opReclaimComplete                    = 53, 58
)

// names are those that RFC 8881 gives to operations.
var names = map[uint32]string{
	opClose: "CLOSE", opCreate: "CREATE", opGetAttr: "GETATTR", opGetHandle: "GETFH",
	opLookUp: "LOOKUP", opLookUpParent: "LOOKUPP", opOpen: "OPEN",
	opPutHandle: "PUTFH", opPutRoot: "PUTROOTFH", opRead: "READ", opReadDir: "READDIR",
	opRemove: "REMOVE", opWrite: "WRITE", opExchangeID: "EXCHANGE_ID", opCreateSession: "CREATE_SESSION",
	opSequence: "SEQUENCE", opReclaimComplete: "RECLAIM_COMPLETE",
}

// most is how many bytes are read at once.
const most = 4096

// anonymous is the stateid of a read or a write without an open.
var anonymous = make([]byte, 16)

// Op is an operation of a compound; read decodes its result unless it failed. Remove, MakeDir and WriteFile must be the
// last of a compound, because part of their results stays undecoded.
type Op struct {
	code uint32
	args packet
	read func(*reply)
}

func PutRoot() Op                { return Op{code: opPutRoot} }
func PutHandle(handle []byte) Op { return Op{code: opPutHandle, args: packet{}.opaque(handle)} }
func LookUp(name string) Op      { return Op{code: opLookUp, args: packet{}.opaque([]byte(name))} }
func LookUpParent() Op           { return Op{code: opLookUpParent} }
func Remove(name string) Op      { return Op{code: opRemove, args: packet{}.opaque([]byte(name))} }

// MakeDir creates a directory with no attributes.
func MakeDir(name string) Op {
	const directory = 2
	return Op{code: opCreate, args: packet{}.numbers(directory).opaque([]byte(name)).numbers(0).opaque(nil)}
}

func GetHandle(to *[]byte) Op {
	return Op{code: opGetHandle, read: func(r *reply) { *to = slices.Clone(r.opaque()) }}
}

// GetAttr requests type, size and file id, and returns the latter.
func GetAttr(to *uint64) Op {
	return Op{opGetAttr, packet{}.numbers(1, 1<<1|1<<4|1<<20), func(r *reply) {
		r.bitmap()
		attributes := reply(r.opaque())
		attributes.number()
		attributes.long()
		*to = attributes.long()
	}}
}

// ReadFile reads up to 4096 bytes without an open, with the anonymous stateid.
func ReadFile(to *[]byte) Op { return readAll(to, new(bool)) }

// readAll also returns whether that is the whole file.
func readAll(to *[]byte, whole *bool) Op {
	args := append(packet{}, anonymous...).long(0).numbers(most)
	return Op{opRead, args, func(r *reply) { *whole = r.number() == 1; *to = slices.Clone(r.opaque()) }}
}

// WriteFile writes the beginning of a file to stable storage, without an open.
func WriteFile(content string) Op { return writeAll(content, new(uint32)) }

// writeAll also returns how many bytes were written.
func writeAll(content string, written *uint32) Op {
	const fileSync = 2
	args := append(packet{}, anonymous...).long(0).numbers(fileSync).opaque([]byte(content))
	return Op{opWrite, args, func(r *reply) { *written = r.number() }}
}

func ReadDir(to *[]string) Op {
	return Op{opReadDir, packet{}.long(0).long(0).numbers(most, 16384, 1, 0), func(r *reply) {
		r.long()
		for r.number() == 1 {
			r.long()
			*to = append(*to, string(r.opaque()))
			r.bitmap()
			r.opaque()
		}
	}}
}

// openNew opens a file to read and write it, and creates it with no attributes unless it exists.
func openNew(client uint64, owner, name string, stateid *[]byte) Op {
	const both, denyNone, create, unchecked, claimNull = 3, 0, 1, 0, 0
	args := packet{}.numbers(0, both, denyNone).long(client).opaque([]byte(owner))
	args = args.numbers(create, unchecked, 0).opaque(nil).numbers(claimNull).opaque([]byte(name))
	return Op{opOpen, args, func(r *reply) {
		*stateid = slices.Clone(r.take(16))
		r.take(4 + 8 + 8 + 4) // how the directory has changed, and flags
		r.bitmap()
		r.number() // no delegation, because the session has no way back to the client
	}}
}

func closeFile(stateid []byte) Op {
	return Op{opClose, append(packet{}.numbers(0), stateid...), func(r *reply) { r.take(16) }}
}
