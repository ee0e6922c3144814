package web

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-storage/holdfast/listener"
)

const (
	stopTimeout = 5 * time.Second
	maxStreams  = 16 // at once on a connection of HTTP/2
	maxAnswers  = 4  // being made at once: with 10,000 volumes each has megabytes
)

func (s *Server) serve(ctx context.Context) error {
	server := listener.HTTP(s.handler)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.identity.certificate}
	server.ErrorLog = slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug) // what strangers send is not worth more
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
	if err := server.ServeTLS(listener.Limit(s.listener, listener.Connections), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
