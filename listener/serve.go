package listener

import (
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// Connections at once of a port that people and programs of the network reach.
	Connections = 256
	// SocketConnections at once of a unix socket. The kubelet makes one for each call.
	SocketConnections = 1024

	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10

	aliveEvery   = time.Minute
	aliveTimeout = 20 * time.Second
	maxCalls     = 1024 // at once on one connection
)

// HTTP returns a server with the limits of one client, however slow or greedy. None of what is served here reads bodies.
func HTTP(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
}

// GRPC returns a server for a unix socket. A connection that does not speak gRPC soon is closed, and so is one whose
// peer does not answer. One that is only idle stays: sidecars end themselves when theirs is lost, and the kubelet
// forgets the registration.
func GRPC(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: aliveEvery, Timeout: aliveTimeout}),
	}, options...)...)
}
