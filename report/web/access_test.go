package web

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestWithoutASecretOnlyHealthIsServedAndTheAnswerSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster("holdfast", "")
		r.start()
		wait.Until(r, "the server is ready", func() bool { return r.get("/readyz").status == http.StatusOK })
		if a := r.get("/livez"); a.status != http.StatusOK || string(a.body) != "ok" {
			t.Errorf("/livez: %d %s", a.status, a.body)
		}
		for _, path := range []string{"/api/v1/cluster", "/api/v1/volumes", "/openapi.json", "/anything"} {
			a := r.get(path)
			if a.status != http.StatusForbidden || !strings.Contains(a.message(), "spec.secretRef") || !strings.Contains(a.message(), "/livez") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
}

func TestEachReasonWhyNobodyMayComeInIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"no cluster": {func(*rig) {}, "There is no StorageCluster"},
		"no secret":  {func(r *rig) { r.cluster("holdfast", "access") }, "does not exist"},
		"no user":    {func(r *rig) { r.cluster("holdfast", "access"); r.secret("access", map[string]string{passwordKey: "p"}) }, "lacks username or password"},
		"empty password": {func(r *rig) {
			r.cluster("holdfast", "access")
			r.secret("access", map[string]string{userKey: "u", passwordKey: ""})
		}, "lacks username or password"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				test.prepare(r)
				r.start()
				wait.Until(r, test.want, func() bool {
					a := r.get("/api/v1/volumes")
					return a.status == http.StatusForbidden && strings.Contains(a.message(), test.want)
				})
				q := r.request(http.MethodGet, "/api/v1/volumes", nil)
				q.SetBasicAuth("", "")
				if a := r.ask(q); a.status != http.StatusForbidden {
					t.Errorf("with nothing as user and password: %d %s", a.status, a.body)
				}
			})
		})
	}
}

func TestSecret_ThatMayNotBeReadIsLoggedOnceWithWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.deny(readsOf("secrets", ""))
		c := r.cluster("holdfast", "access")
		r.start()
		const why = "the secret of spec.secretRef may not be read"
		wait.Until(r, "the refusal is logged", func() bool { return len(r.log.lines(why)) > 0 })
		line := r.log.lines(why)[0]
		for _, want := range []string{"level=WARN", "get, list and watch", "secret=holdfast-system/access", `secrets \"access\" is forbidden: no role has it`} {
			if !strings.Contains(line, want) {
				t.Errorf("%q is not in the log: %s", want, line)
			}
		}
		if a := r.get("/api/v1/volumes"); a.status != http.StatusForbidden || !strings.Contains(a.message(), "may not read the secret") || strings.Contains(a.message(), "no role has it") {
			t.Errorf("%d %s", a.status, a.body)
		}
		for range 5 {
			r.server.identity.wake()
		}
		c.Spec.SecretRef.Name = "another"
		if _, err := r.ours.HoldfastV1beta1().StorageClusters().Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "the refusal of the other secret is logged", func() bool { return len(r.log.lines("secret=holdfast-system/another")) > 0 })
		if lines := r.log.lines(why); len(lines) != 2 {
			t.Errorf("it was logged %d times: %v", len(lines), lines)
		}
		r.deny(nil)
		r.secret("another", map[string]string{userKey: user, passwordKey: password})
		wait.Until(r, "the user is admitted", func() bool { return r.get("/api/v1/cluster").status == http.StatusOK })
	})
}

func TestOnlyTheRightUserWithTheRightPasswordMayComeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for name, change := range map[string]func(*http.Request){
			"nothing":                func(q *http.Request) { q.Header.Del("Authorization") },
			"another user":           func(q *http.Request) { q.SetBasicAuth("root", password) },
			"another password":       func(q *http.Request) { q.SetBasicAuth(user, "battery staple") },
			"the beginning of it":    func(q *http.Request) { q.SetBasicAuth(user, password[:5]) },
			"user and password":      func(q *http.Request) { q.SetBasicAuth(password, user) },
			"an empty password":      func(q *http.Request) { q.SetBasicAuth(user, "") },
			"another kind":           func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+password) },
			"what is no base64":      func(q *http.Request) { q.Header.Set("Authorization", "Basic ***") },
			"the user with a colon ": func(q *http.Request) { q.SetBasicAuth(user+":", password) },
		} {
			q := r.request(http.MethodGet, "/api/v1/volumes", nil)
			change(q)
			a := r.ask(q)
			if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") || !strings.Contains(a.message(), "secretRef") {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	})
}

func TestAChangeOfTheSecretIsUsedWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		r.secret("access", map[string]string{userKey: user, passwordKey: "another"})
		wait.Until(r, "the old password is refused", func() bool { return r.get("/api/v1/cluster").status == http.StatusUnauthorized })
		q := r.request(http.MethodGet, "/api/v1/cluster", nil)
		q.SetBasicAuth(user, "another")
		if a := r.ask(q); a.status != http.StatusOK {
			t.Errorf("with the new password: %d %s", a.status, a.body)
		}
		if err := r.theirs.CoreV1().Secrets(namespace).Delete(t.Context(), "access", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "all users being refused", func() bool { return r.get("/api/v1/cluster").status == http.StatusForbidden })
	})
}

func TestAnotherSecretOfTheClusterTakesThePlaceOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		r.secret("others", map[string]string{userKey: "other", passwordKey: "secret"})
		clusters := r.ours.HoldfastV1beta1().StorageClusters()
		c, err := clusters.Get(t.Context(), "holdfast", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.Spec.SecretRef.Name = "others"
		if _, err := clusters.Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		q := r.request(http.MethodGet, "/api/v1/cluster", nil)
		q.SetBasicAuth("other", "secret")
		wait.Until(r, "the other user may come in", func() bool { return r.ask(q).status == http.StatusOK })
		if a := r.get("/api/v1/cluster"); a.status != http.StatusUnauthorized {
			t.Errorf("the first user: %d %s", a.status, a.body)
		}
		// What happens to the first secret is of no more interest.
		r.secret("access", map[string]string{userKey: "third", passwordKey: "third"})
		if a := r.ask(q); a.status != http.StatusOK {
			t.Errorf("the other user: %d %s", a.status, a.body)
		}
	})
}

func TestTheServiceSpeaksHTTP2AndNoOldTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		if a := r.get("/api/v1/cluster"); a.proto != "HTTP/2.0" {
			t.Errorf("got %s", a.proto)
		}
		conn, err := r.dialTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // it must be refused
		if err == nil {
			conn.Close()
			t.Error("TLS 1.1 is spoken")
		}
	})
}
