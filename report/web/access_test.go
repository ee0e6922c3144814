package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestAccess_WithoutAUserOnlyHealthIsServedAndTheAnswerSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"no cluster":   {func(*rig) {}, "There is no StorageCluster"},
		"no secretRef": {func(r *rig) { r.cluster("holdfast", "") }, "has no spec.secretRef"},
		"no secret":    {func(r *rig) { r.cluster("holdfast", "access") }, "does not exist"},
		"no user":      {func(r *rig) { r.cluster("holdfast", "access"); r.secret("access", map[string]string{passwordKey: "p"}) }, "lacks username or password"},
		"empty password": {func(r *rig) {
			r.cluster("holdfast", "access")
			r.secret("access", map[string]string{userKey: "u", passwordKey: ""})
		}, "lacks username or password"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				test.prepare(r)
				r.start()
				for _, path := range []string{reportPath, "/", "/anything"} {
					wait.Until(r, test.want, func() bool {
						a := r.get(path)
						return a.status == http.StatusForbidden && strings.Contains(a.message(), test.want) && strings.Contains(a.message(), "/livez")
					})
				}
				if name == "no cluster" && r.own() != nil {
					r.Error("a secret was made that nothing removes")
				}
				if a := r.as("", ""); a.status != http.StatusForbidden {
					r.Errorf("with nothing as user and password: %d %s", a.status, a.body)
				}
				for _, path := range []string{"/livez", "/readyz"} {
					if a := r.get(path); a.status != http.StatusOK {
						r.Errorf("%s: %d %s", path, a.status, a.body)
					}
				}
			})
		})
	}
}

func TestAccess_OnlyTheRightUserWithTheRightPasswordIsAdmitted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		wrong := map[string]func(*http.Request){
			"nothing":                func(q *http.Request) { q.Header.Del("Authorization") },
			"another user":           func(q *http.Request) { q.SetBasicAuth("root", password) },
			"another password":       func(q *http.Request) { q.SetBasicAuth(user, "battery staple") },
			"the beginning of it":    func(q *http.Request) { q.SetBasicAuth(user, password[:5]) },
			"user and password":      func(q *http.Request) { q.SetBasicAuth(password, user) },
			"an empty password":      func(q *http.Request) { q.SetBasicAuth(user, "") },
			"another kind":           func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+password) },
			"what is no base64":      func(q *http.Request) { q.Header.Set("Authorization", "Basic ***") },
			"the user with a colon ": func(q *http.Request) { q.SetBasicAuth(user+":", password) },
		}
		paths := append(pagePaths(r.T), reportPath, "/none")
		for name, change := range wrong {
			for _, path := range paths {
				q := r.request(http.MethodGet, path, nil)
				change(q)
				a := r.ask(q)
				if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") || !strings.Contains(a.message(), "secretRef") {
					r.Errorf("%s with %s: %d %s", path, name, a.status, a.body)
				}
			}
		}
	})
}

func TestAccess_FollowsTheSecretAndTheStorageClusterWithoutARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		status := func(user, password string) int { return r.as(user, password).status }
		r.secret("access", map[string]string{userKey: user, passwordKey: "another"})
		wait.Until(r, "the new password counts", func() bool {
			return status(user, "another") == http.StatusOK && status(user, password) == http.StatusUnauthorized
		})

		r.secret("others", map[string]string{userKey: "other", passwordKey: "secret"})
		clusters := r.ours.HoldfastV1beta1().StorageClusters()
		c := check.Got(clusters.Get(r.Context(), "holdfast", metav1.GetOptions{}))(r)
		c.Spec.SecretRef.Name = "others"
		check.Got(clusters.Update(r.Context(), c, metav1.UpdateOptions{}))(r)
		wait.Until(r, "the other user is admitted", func() bool { return status("other", "secret") == http.StatusOK })
		r.secret("access", map[string]string{userKey: "third", passwordKey: "third"}) // which is named no more
		if status("third", "third") != http.StatusUnauthorized || status("other", "secret") != http.StatusOK {
			r.Error("the first secret counts")
		}
		r.must(r.theirs.CoreV1().Secrets(namespace).Delete(r.Context(), "others", metav1.DeleteOptions{}))
		wait.Until(r, "no user is admitted", func() bool { return status("other", "secret") == http.StatusForbidden })
	})
}

func TestSecret_ThatMayNotBeReadIsLoggedOnceWithWhatToDo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.deny(readsOf("secrets", ""))
		c := r.cluster("holdfast", "access")
		r.start()
		const why = "the secret of spec.secretRef may not be read"
		wait.Until(r, "the refusal is logged", func() bool { return len(r.log.lines(why)) > 0 })
		line := r.log.lines(why)[0]
		for _, want := range []string{"level=WARN", "get, list and watch", "secret=holdfast-system/access", `secrets \"access\" is forbidden: no role has it`} {
			if !strings.Contains(line, want) {
				r.Errorf("%q is not in the log: %s", want, line)
			}
		}
		if a := r.get(reportPath); a.status != http.StatusForbidden || !strings.Contains(a.message(), "may not read the secret") || strings.Contains(a.message(), "no role has it") {
			r.Errorf("%d %s", a.status, a.body)
		}
		for range 5 {
			r.server.identity.wake()
		}
		c.Spec.SecretRef.Name = "another"
		check.Got(r.ours.HoldfastV1beta1().StorageClusters().Update(r.Context(), c, metav1.UpdateOptions{}))(r)
		wait.Until(r, "the refusal of the other secret is logged", func() bool { return len(r.log.lines("secret=holdfast-system/another")) > 0 })
		if lines := r.log.lines(why); len(lines) != 2 {
			r.Errorf("it was logged %d times: %v", len(lines), lines)
		}
		r.deny(nil)
		r.secret("another", map[string]string{userKey: user, passwordKey: password})
		wait.Until(r, "the user is admitted", func() bool { return r.get(reportPath).status == http.StatusOK })
	})
}

// try asks with a password from an address, and returns how long that took.
func (r *rig) try(ctx context.Context, from, password string) (answer, time.Duration) {
	q := r.request(http.MethodGet, reportPath, nil).WithContext(ctx)
	q.RemoteAddr = from + ":1000"
	q.SetBasicAuth(user, password)
	begun := time.Now()
	return r.ask(q), time.Since(begun)
}

func TestPassword_AWrongOneIsAnsweredLateAndFewAtOnceAreLookedAt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		var mu sync.Mutex
		got := map[int]int{}
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				a, took := r.try(r.Context(), "127.0.0.2", "guess")
				mu.Lock()
				defer mu.Unlock()
				got[a.status]++
				if a.status == http.StatusUnauthorized && took < guessDelay || a.status == http.StatusTooManyRequests && (took > 0 || a.header.Get("Retry-After") != "1") {
					r.Errorf("%d after %s, %v", a.status, took, a.header)
				}
			})
		}
		synctest.Wait()
		// Or the client would learn which of its guesses is right.
		if a, _ := r.try(r.Context(), "127.0.0.2", password); a.status != http.StatusTooManyRequests {
			r.Errorf("the right one among too many guesses: %d", a.status)
		}
		if a, took := r.try(r.Context(), "127.0.0.3", password); a.status != http.StatusOK || took > 0 {
			r.Errorf("another client with the right password: %d after %s", a.status, took)
		}
		all.Wait()
		if got[http.StatusUnauthorized] != maxGuessesPerClient || got[http.StatusTooManyRequests] != 40-maxGuessesPerClient {
			r.Errorf("got %v", got)
		}
		if a, _ := r.try(r.Context(), "127.0.0.2", password); a.status != http.StatusOK {
			r.Errorf("the right one a second later: %d", a.status)
		}

		hungUp, cancel := context.WithCancel(r.Context())
		cancel()
		for range maxGuessesPerClient {
			all.Go(func() { r.try(hungUp, "127.0.0.2", "guess") })
		}
		synctest.Wait()
		if a, _ := r.try(r.Context(), "127.0.0.2", password); a.status != http.StatusTooManyRequests {
			r.Errorf("a client that hangs up guesses the sooner: %d", a.status)
		}
		all.Wait()
	})
}

func TestPassword_GuessesOfAllClientsAreBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		// A host has all addresses of a /64, which are one client.
		client := func(network, host int) string { return fmt.Sprintf("[2001:db8:0:%x::%x]", network, host+1) }
		var looked [8]atomic.Int32
		var all sync.WaitGroup
		for i := range 10 * maxGuesses {
			all.Go(func() {
				if a, _ := r.try(r.Context(), client(i%8, i), "guess"); a.status == http.StatusUnauthorized {
					looked[i%8].Add(1)
				}
			})
		}
		all.Wait()
		total := int32(0)
		for i := range looked {
			total += looked[i].Load()
			if n := looked[i].Load(); n > maxGuessesPerClient {
				r.Errorf("%d of one client are looked at", n)
			}
		}
		if total != maxGuesses || len(r.server.guesses.clients) > 0 {
			r.Errorf("%d are looked at, and %v stay", total, r.server.guesses.clients)
		}
	})
}
