package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := OpenAuthority(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, name string, s Subject) tls.Certificate {
	t.Helper()
	if err := a.Issue(name, s); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// shake runs a handshake in which both sides verify, and returns what the server learned and the client's error.
func shake(t *testing.T, server, client tls.Certificate, roots *x509.CertPool, host string) (*x509.Certificate, error) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	type result struct {
		peer *x509.Certificate
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- result{err: err}
			return
		}
		defer conn.Close()
		s, _ := conn.(*tls.Conn)
		if err := s.HandshakeContext(t.Context()); err != nil {
			done <- result{err: err}
			return
		}
		done <- result{peer: s.ConnectionState().PeerCertificates[0]}
	}()
	dialer := tls.Dialer{Config: &tls.Config{Certificates: []tls.Certificate{client}, RootCAs: roots, ServerName: host}}
	c, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	learned := <-done
	if err != nil {
		return nil, err
	}
	return learned.peer, errors.Join(learned.err, c.Close())
}

func TestCertificate_ServerAndClientVerifyEachOther(t *testing.T) {
	a := authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	server := issue(t, a, "server", Subject{User: "server", Hosts: []string{"10.1.2.3", "kubernetes"}})
	client := issue(t, a, "client", Subject{User: "system:node:one", Groups: []string{"system:nodes"}})
	for _, host := range []string{"10.1.2.3", "kubernetes"} {
		who, err := shake(t, server, client, roots, host)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		if who.Subject.CommonName != "system:node:one" || who.Subject.Organization[0] != "system:nodes" {
			t.Errorf("the server takes the client for %s", who.Subject)
		}
	}
	if _, err := shake(t, server, client, roots, "10.1.2.4"); err == nil {
		t.Error("the server's certificate is taken for another address")
	}
	if _, err := shake(t, client, client, roots, "system:node:one"); err == nil {
		t.Error("a certificate without hosts serves")
	}
}

func TestAuthority_OtherOneOfTheSameNameIsNotTrusted(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	server := issue(t, theirs, "server", Subject{User: "server", Hosts: []string{"kubernetes"}})
	if _, err := shake(t, server, server, roots, "kubernetes"); err == nil {
		t.Error("a stranger's certificate is taken")
	}
}

func TestCertificate_IsKeptUntilItsSubjectChanges(t *testing.T) {
	a := authority(t)
	file := filepath.Join(a.dir, "x.crt")
	read := func(s Subject) string {
		issue(t, a, "x", s)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first := read(Subject{User: "x", Hosts: []string{"10.0.0.1"}})
	if read(Subject{User: "x", Hosts: []string{"10.0.0.1"}}) != first {
		t.Error("the same subject got a new certificate")
	}
	if read(Subject{User: "x", Hosts: []string{"10.0.0.2"}}) == first {
		t.Error("another address kept the old certificate")
	}
}

func TestAuthority_IsFoundAgainAndItsKeyIsPrivate(t *testing.T) {
	a := authority(t)
	again, err := OpenAuthority(a.dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if !again.cert.Equal(a.cert) {
		t.Error("a second authority was made")
	}
	info, err := os.Stat(filepath.Join(a.dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func TestCertificate_WithAnOutdatedKeyIsReissued(t *testing.T) {
	a := authority(t)
	issue(t, a, "x", Subject{User: "x"})
	issue(t, a, "y", Subject{User: "y"})
	// As a crash between the two files leaves it.
	if err := os.Rename(filepath.Join(a.dir, "y.key"), filepath.Join(a.dir, "x.key")); err != nil {
		t.Fatal(err)
	}
	issue(t, a, "x", Subject{User: "x"}) // fails to load a pair that does not match
}

func TestAuthority_AccountKeysAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	var keys [2]string
	for i := range keys {
		if err := IssueAccountKeys(dir, "accounts"); err != nil {
			t.Fatal(err)
		}
		key, err := os.ReadFile(filepath.Join(dir, "accounts.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = string(key)
	}
	if keys[0] != keys[1] {
		t.Error("tokens signed before are void")
	}
}
