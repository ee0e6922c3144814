package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// answer serves the host alone: what it cannot see from outside, and images.
func answer(ctx context.Context, g config.Guest) error {
	pair, err := tls.LoadX509KeyPair(g.Cert, g.Key)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(g.CA)
	if err != nil {
		return err
	}
	known := x509.NewCertPool()
	if !known.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s holds no certificate", g.CA)
	}
	listener, err := tls.Listen("tcp", g.Listen, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: requireAdmin(routes(g)), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	return server.Serve(listener)
}

// requireAdmin refuses everybody else whom the cluster's authority vouches for: every node's daemons are among them.
func requireAdmin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := r.TLS.PeerCertificates[0].Subject.CommonName; who != "admin" {
			http.Error(w, who+" may not ask this", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func routes(g config.Guest) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (string, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			said, err := f(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, said)
		})
	}
	handle("GET /healthz", func(r *http.Request) (string, error) { return ctr(r.Context(), g, "version") })
	handle("GET /boot", func(*http.Request) (string, error) {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		return strings.TrimSpace(string(id)), err
	})
	handle("GET /images", func(r *http.Request) (string, error) { return ctr(r.Context(), g, "images", "list", "-q") })
	handle("POST /images", func(r *http.Request) (string, error) {
		return ctr(r.Context(), g, "images", "import", "--all-platforms", r.URL.Query().Get("archive"))
	})
	return mux
}

func ctr(ctx context.Context, g config.Guest, args ...string) (string, error) {
	return host.Run(ctx, append([]string{"ctr", "--address", g.Socket, "--namespace", "k8s.io"}, args...)...)
}
