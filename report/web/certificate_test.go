package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// shown is the certificate that clients get.
func (r *rig) shown() *x509.Certificate { return r.shownBy(r.server) }

func (r *rig) shownBy(s *Server) *x509.Certificate {
	r.Helper()
	pair := check.Got(s.identity.certificate(nil))(r)
	return pair.Leaf
}

// own is the secret of the self-signed certificate; nil if there is none.
func (r *rig) own() *core.Secret {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().Secrets(namespace).Get, ownSecret)
}

// isKept returns whether the server is ready, and shows the certificate of the secret.
func (r *rig) isKept() bool {
	r.Helper()
	secret := r.own()
	if secret == nil || r.get("/readyz").status != http.StatusOK {
		return false
	}
	pair, err := tls.X509KeyPair(secret.Data[core.TLSCertKey], secret.Data[core.TLSPrivateKeyKey])
	return err == nil && pair.Leaf.Equal(r.shown())
}

func TestCertificate_IsTheSameAtEveryReplicaAndAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.cluster("holdfast", "")
		first, second := r.replica(), r.replica()
		serial := func(s *Server) string {
			r.server = s
			wait.Until(r, "the replica shows the certificate of the secret", r.isKept)
			return r.shown().SerialNumber.String()
		}
		if one, two, later := serial(first), serial(second), serial(r.replica()); one != two || two != later {
			r.Errorf("got %s, %s, and after a restart %s", one, two, later)
		}
	})
}

func TestCertificate_WhoseSecretMayNotBeReadIsLoggedOnceWithWhatToDo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.deny(readsOf("secrets", ownSecret))
		r.cluster("holdfast", "")
		r.start()
		const why = "each replica may show another one"
		wait.Until(r, "the refusal is logged", func() bool { return len(r.log.lines(why)) > 0 })
		if line := r.log.lines(why)[0]; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "secret=holdfast-system/"+ownSecret) || !strings.Contains(line, "apply the manifest") {
			r.Errorf("the log is: %s", line)
		}
		if a := r.get("/readyz"); a.status != http.StatusOK || r.own() != nil {
			r.Errorf("%d %s", a.status, a.body)
		}
		r.deny(nil)
		wait.Until(r, "the certificate is kept", r.isKept)
		if lines := r.log.lines(why); len(lines) != 1 {
			r.Errorf("it was logged %d times", len(lines))
		}
	})
}

func TestCertificate_IsTrustedUnderTheNamesOfTheServiceAndFollowsThem(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.cluster("holdfast", "")
		r.start()
		trusted := func(names ...string) {
			r.Helper()
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(r.own().Data[core.TLSCertKey]) {
				r.Fatal("there is no certificate")
			}
			for _, name := range names {
				if _, err := r.shown().Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
					r.Errorf("as %s: %v", name, err)
				}
			}
		}
		wait.Until(r, "the certificate is kept", r.isKept)
		trusted("holdfast", "holdfast.holdfast-system.svc", "localhost", "127.0.0.1")
		secret := r.own()
		if owners := secret.OwnerReferences; len(owners) != 1 || owners[0].UID != c.UID || owners[0].Kind != "StorageCluster" {
			r.Errorf("the secret is owned by %v, so it stays when the cluster is removed", owners)
		}
		if secret.Labels["app.kubernetes.io/managed-by"] == "holdfast-operator" {
			r.Error("the operator would prune the secret, as it does not render it")
		}
		if r.shown().IsCA {
			r.Error("clients that trust it would trust certificates for any name")
		}

		c.Spec.Service.Name = "storage"
		c.Spec.Ingress = v1beta1.IngressSpec{Enabled: true, Host: "storage.example.com"}
		check.Got(r.ours.HoldfastV1beta1().StorageClusters().Update(r.Context(), c, metav1.UpdateOptions{}))(r)
		wait.Until(r, "the certificate has the new names", func() bool { return r.isKept() && !slices.Contains(r.shown().DNSNames, "holdfast") })
		trusted("storage.holdfast-system.svc", "storage.example.com", "localhost")
	})
}

func TestCertificate_IsUsableUntilAThirdOfItsTimeIsLeft(t *testing.T) {
	now, names := time.Now(), namesFor(nil, namespace)
	data := check.Got(makePair(names, now))(t)
	for name, test := range map[string]struct {
		at     time.Time
		names  []string
		usable bool
	}{
		"new":                {now, names, true},
		"in half a year":     {now.AddDate(0, 6, 0), names, true},
		"in nine months":     {now.AddDate(0, 9, 0), names, false},
		"after its end":      {now.AddDate(2, 0, 0), names, false},
		"made in the future": {now.AddDate(-1, 0, 0), names, false},
		"for other names":    {now, []string{"other"}, false},
	} {
		if usable(data, test.names, test.at) != test.usable {
			t.Errorf("%s: usable is %t", name, !test.usable)
		}
	}
}

func TestCertificate_InTheSecretIsReplacedWhereItIsOldSpoiledOrGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.cluster("holdfast", "")
		old := check.Got(makePair(namesFor(c, namespace), time.Now().AddDate(0, -11, 0)))(r)
		secrets := r.theirs.CoreV1().Secrets(namespace)
		check.Got(secrets.Create(r.Context(), secretFor(c, namespace, old), metav1.CreateOptions{}))(r)
		r.start()
		isNew := func() bool { return r.isKept() && time.Until(r.shown().NotAfter) > pairLasts/2 }
		wait.Until(r, "the old one is replaced", isNew)
		r.secret(ownSecret, map[string]string{core.TLSCertKey: "nonsense"})
		wait.Until(r, "the spoiled one is replaced", isNew)
		r.must(secrets.Delete(r.Context(), ownSecret, metav1.DeleteOptions{}))
		wait.Until(r, "the secret is there again", isNew)
	})
}

func TestCertificate_OfTheUserIsShownAndFollowed(t *testing.T) {
	inBubble(t, func(r *rig) {
		pair := func(name string) map[string]string {
			data := check.Got(makePair([]string{name}, time.Now()))(r)
			return map[string]string{userKey: user, passwordKey: password, core.TLSCertKey: string(data[core.TLSCertKey]), core.TLSPrivateKeyKey: string(data[core.TLSPrivateKeyKey])}
		}
		r.cluster("holdfast", "access")
		r.secret("access", pair("one.example.com"))
		r.start()
		wait.Until(r, "the first pair is shown", func() bool { return r.shown().DNSNames[0] == "one.example.com" })
		if r.own() != nil {
			r.Error("a certificate was made without need")
		}
		r.secret("access", pair("two.example.com"))
		wait.Until(r, "the second pair is shown", func() bool { return r.shown().DNSNames[0] == "two.example.com" })
		broken := pair("three.example.com")
		broken[core.TLSPrivateKeyKey] = pair("four.example.com")[core.TLSPrivateKeyKey]
		broken[passwordKey] = "seen"
		r.secret("access", broken)
		wait.Until(r, "the broken pair is known", func() bool { return r.as(user, "seen").status == http.StatusOK })
		if name := r.shown().DNSNames[0]; name != "two.example.com" {
			r.Errorf("shown is %s", name)
		}
		r.secret("access", map[string]string{userKey: user, passwordKey: password})
		wait.Until(r, "the self-signed one is shown", r.isKept)
	})
}
