package listener

import (
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// Connections is the limit of a port that is reachable over the network.
	Connections = 256
	// SocketConnections is the limit of a unix socket. The kubelet opens a connection for each call.
	SocketConnections = 1024

	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10

	aliveEvery   = time.Minute
	aliveTimeout = 20 * time.Second
	maxCalls     = 1024 // concurrent, on one connection
)

// HTTP returns a server with limits that hold for slow and greedy clients. No handler behind it reads a request body.
func HTTP(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
}

// GRPC returns a server for a unix socket. It closes a connection that does not start to speak gRPC in time, or whose
// peer does not answer keepalives. An idle connection stays open: sidecars exit when theirs is closed, and the kubelet
// drops the registration.
func GRPC(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: aliveEvery, Timeout: aliveTimeout}),
	}, options...)...)
}
