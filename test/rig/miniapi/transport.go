package miniapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// transport hands requests to a server of this process, without a socket.
type transport struct{ *Server }

var errClosed = errors.New("this API was closed")

// RoundTrip is for http.Client. The answer is streamed, and a client that leaves ends the request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.ended() {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(r.Context())
	in, out := io.Pipe()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a := &answer{header: http.Header{}, code: http.StatusOK, begun: make(chan struct{}), body: out}
	go func() {
		defer r.Body.Close()
		t.serve(a, r.WithContext(ctx))
		a.Flush()
		out.Close()
	}()
	select {
	case <-a.begun:
	case <-ctx.Done():
		cancel()
		in.Close()
		return nil, ctx.Err()
	}
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: body{in, out, cancel}, ContentLength: -1, Request: r,
	}, nil
}

// answer is what the server writes into a pipe.
type answer struct {
	header http.Header
	code   int
	once   sync.Once
	begun  chan struct{} // closed once the header stands
	body   *io.PipeWriter
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.once.Do(func() {
		a.code = code
		close(a.begun)
	})
}

func (a *answer) Write(text []byte) (int, error) {
	a.Flush()
	return a.body.Write(text)
}

func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// body ends the request when the client closes it.
type body struct {
	io.Reader
	out   *io.PipeWriter
	leave context.CancelFunc
}

func (b body) Close() error {
	err := b.out.Close() // who still reads finds the end
	b.leave()
	return err
}
