package web

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The limits of one client, so that none of them, however slow or greedy, keeps the others from being served.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 5 * time.Second
	maxHeaderBytes = 16 << 10
	maxConnections = 256
	maxStreams     = 16 // at once on a connection of HTTP/2
	maxAnswers     = 16 // being made at once
)

func (s *Server) serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		TLSConfig:      &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.identity.certificate},
		ErrorLog:       slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // what strangers send is not worth more
	}
	ended := make(chan struct{})
	defer func() { <-ended }()
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(ended)
		<-stopping.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(last) != nil {
			server.Close()
		}
	}()
	s.Log.Info("serving the API", "address", s.Address())
	if err := server.ServeTLS(limit(s.listener, maxConnections), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// limited accepts a connection only while fewer than its number of slots are open; the rest wait in the kernel.
type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, connections int) *limited {
	return &limited{Listener: l, slots: make(chan struct{}, connections), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slot{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slot struct {
	net.Conn
	free func()
}

func (s *slot) Close() error {
	defer s.free()
	return s.Conn.Close()
}
