package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// shown is the certificate that a client sees.
func (r *rig) shown() *x509.Certificate {
	r.Helper()
	return r.get("/livez").pair.PeerCertificates[0]
}

// own is the secret of the self-made certificate; nil if there is none.
func (r *rig) own() *core.Secret {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().Secrets(namespace).Get, ownSecret)
}

// isReady says whether the server also has the certificate that lasts, which /readyz does not wait for.
func (r *rig) isReady() bool {
	return r.get("/readyz").status == http.StatusOK && r.server.identity.lasts.Load()
}

func TestTheSelfMadeCertificateIsTheSameAtEveryReplicaAndAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster("holdfast", "")
		first, second := r.replica(), r.replica()
		var serials []string
		for _, s := range []*Server{first, second, nil} {
			if s == nil {
				s = r.replica()
			}
			r.server = s
			wait.Until(r, "the replica is ready", r.isReady)
			serials = append(serials, r.shown().SerialNumber.String())
		}
		if serials[0] != serials[1] || serials[1] != serials[2] {
			t.Errorf("got %v", serials)
		}
	})
}

func TestCertificate_WhoseSecretMayNotBeReadIsLoggedOnceWithWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.deny(readsOf("secrets", ownSecret))
		r.cluster("holdfast", "")
		r.start()
		const why = "each replica may show another one"
		wait.Until(r, "the refusal is logged", func() bool { return len(r.log.lines(why)) > 0 })
		if line := r.log.lines(why)[0]; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "secret=holdfast-system/"+ownSecret) || !strings.Contains(line, "apply the manifest") {
			t.Errorf("the log is: %s", line)
		}
		if a := r.get("/readyz"); a.status != http.StatusOK || r.server.identity.lasts.Load() {
			t.Errorf("%d %s", a.status, a.body)
		}
		r.deny(nil)
		wait.Until(r, "the certificate is kept", r.isReady)
		if lines := r.log.lines(why); len(lines) != 1 {
			t.Errorf("it was logged %d times", len(lines))
		}
	})
}

func TestAClientThatTrustsTheAuthorityReachesTheServiceUnderItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.cluster("holdfast", "")
		r.start()
		wait.Until(r, "the server is ready", r.isReady)
		secret := r.own()
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(secret.Data[authorityCert]) {
			t.Fatalf("%s is no certificate", authorityCert)
		}
		for _, name := range []string{"holdfast", "holdfast.holdfast-system.svc", "localhost", "127.0.0.1"} {
			conn, err := r.dialTLS(&tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13})
			if err != nil {
				t.Errorf("as %s: %v", name, err)
				continue
			}
			conn.Close()
		}
		if owners := secret.OwnerReferences; len(owners) != 1 || owners[0].UID != c.UID || owners[0].Kind != "StorageCluster" {
			t.Errorf("the secret is owned by %v, so it stays when the cluster is removed", owners)
		}
		if secret.Labels["app.kubernetes.io/managed-by"] == "holdfast-operator" {
			t.Error("the operator would prune the secret, as it does not render it")
		}
	})
}

func TestTheCertificateFollowsTheNamesOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.cluster("holdfast", "")
		r.start()
		wait.Until(r, "the server is ready", r.isReady)
		authority := r.own().Data[authorityCert]
		c.Spec.Service.Name = "storage"
		c.Spec.Ingress = v1beta1.IngressSpec{Enabled: true, Host: "storage.example.com"}
		if _, err := r.ours.HoldfastV1beta1().StorageClusters().Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "the certificate has the new names", func() bool {
			names := r.shown().DNSNames
			return slices.Contains(names, "storage.holdfast-system.svc") && slices.Contains(names, "storage.example.com") && !slices.Contains(names, "holdfast")
		})
		if string(r.own().Data[authorityCert]) != string(authority) {
			t.Error("clients must trust another authority now")
		}
	})
}

func TestACertificateIsRenewedBeforeItExpiresByTheSameAuthority(t *testing.T) {
	now := time.Now()
	names := namesFor(nil, namespace)
	m, err := makePair(nil, names, now)
	if err != nil {
		t.Fatal(err)
	}
	data := ownerOf(&v1beta1.StorageCluster{}).secret(namespace, m).Data
	for name, test := range map[string]struct {
		at    time.Time
		names []string
		renew bool
	}{
		"new":                   {now, names, false},
		"in half a year":        {now.AddDate(0, 6, 0), names, false},
		"in nine months":        {now.AddDate(0, 9, 0), names, true},
		"after its end":         {now.AddDate(2, 0, 0), names, true},
		"made in the future":    {now.AddDate(-1, 0, 0), names, true},
		"for other names":       {now, []string{"other"}, true},
		"the authority is old":  {now.AddDate(9, 6, 0), names, true},
		"the authority is gone": {now.AddDate(11, 0, 0), names, true},
	} {
		if err := current(data, test.names, test.at); (err != nil) != test.renew {
			t.Errorf("%s: %v", name, err)
		}
		again, err := makePair(data, test.names, test.at)
		if err != nil {
			t.Fatal(err)
		}
		same := string(again.authority) == string(m.authority)
		if outlived := strings.HasPrefix(name, "the authority") || name == "made in the future"; same == outlived {
			t.Errorf("%s: the same authority: %t", name, same)
		}
		if err := current(ownerOf(&v1beta1.StorageCluster{}).secret(namespace, again).Data, test.names, test.at); err != nil {
			t.Errorf("%s: what is made instead is no better: %v", name, err)
		}
	}
}

func TestAnOldCertificateInTheSecretIsReplacedThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.cluster("holdfast", "")
		m, err := makePair(nil, namesFor(c, namespace), time.Now().AddDate(0, -11, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.theirs.CoreV1().Secrets(namespace).Create(t.Context(), ownerOf(c).secret(namespace, m), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.start()
		wait.Until(r, "the server is ready", r.isReady)
		if left := time.Until(r.shown().NotAfter); left < pairLasts/2 {
			t.Errorf("the certificate ends in %s", left)
		}
		secret := r.own()
		if string(secret.Data[core.TLSCertKey]) == string(m.cert) || string(secret.Data[authorityCert]) != string(m.authority) {
			t.Error("the secret has the old certificate, or another authority")
		}
	})
}

func TestASecretThatIsDeletedOrSpoiledIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster("holdfast", "")
		r.start()
		wait.Until(r, "the server is ready", r.isReady)
		if err := r.theirs.CoreV1().Secrets(namespace).Delete(t.Context(), ownSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "the secret is there again", func() bool { return r.own() != nil })
		r.secret(ownSecret, map[string]string{core.TLSCertKey: "nonsense"})
		wait.Until(r, "the secret has a certificate again", func() bool {
			s := r.own()
			return s != nil && current(s.Data, namesFor(nil, namespace), time.Now()) == nil
		})
	})
}

func TestThePairOfTheUserIsShownAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pair := func(name string) map[string]string {
			m, err := makePair(nil, []string{name}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{userKey: user, passwordKey: password, core.TLSCertKey: string(m.cert), core.TLSPrivateKeyKey: string(m.key)}
		}
		r.cluster("holdfast", "access")
		r.secret("access", pair("one.example.com"))
		r.start()
		wait.Until(r, "the first pair is shown", func() bool { return r.shown().DNSNames[0] == "one.example.com" && r.isReady() })
		if r.own() != nil {
			t.Error("a certificate was made without need")
		}
		r.secret("access", pair("two.example.com"))
		wait.Until(r, "the second pair is shown", func() bool { return r.shown().DNSNames[0] == "two.example.com" })
		broken := pair("three.example.com")
		broken[core.TLSPrivateKeyKey] = pair("four.example.com")[core.TLSPrivateKeyKey]
		broken[passwordKey] = "seen"
		r.secret("access", broken)
		q := r.request(http.MethodGet, "/api/v1/cluster", nil)
		q.SetBasicAuth(user, "seen")
		wait.Until(r, "the broken pair is known", func() bool { return r.ask(q).status == http.StatusOK })
		if name := r.shown().DNSNames[0]; name != "two.example.com" {
			t.Errorf("shown is %s", name)
		}
		r.secret("access", map[string]string{userKey: user, passwordKey: password})
		wait.Until(r, "the self-made one is shown", func() bool { return slices.Contains(r.shown().DNSNames, "localhost") && r.own() != nil })
	})
}

func TestWithoutAClusterNoSecretIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		wait.Until(r, "the server knows that there is no cluster", func() bool {
			return strings.Contains(r.get("/api/v1/cluster").message(), "no StorageCluster")
		})
		if a := r.get("/readyz"); a.status != http.StatusOK {
			t.Errorf("the pod of a controller without a cluster is not ready: %d %s", a.status, a.body)
		}
		if r.own() != nil {
			t.Error("a secret was made that nothing removes")
		}
	})
}
