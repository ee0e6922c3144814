package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// probe asks components how they are, as the administrator and with the server verified.
type probe struct{ client *http.Client }

func (c *Cluster) newProbe() (*probe, error) {
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's ca.crt holds no certificate")
	}
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		DisableKeepAlives: true, // a restarted component gets a new connection
	}
	return &probe{&http.Client{Transport: transport, Timeout: 5 * time.Second}}, nil
}

// get succeeds when the address answers 200.
func (p *probe) get(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, p.client, http.MethodGet, url, nil)
		return err
	}
}

// call returns the answer to a request. One that is not 200 is an error.
func call(ctx context.Context, client *http.Client, method, url string, body io.Reader) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.2000s", method, url, response.Status, strings.TrimSpace(string(answer)))
	}
	return answer, err
}
