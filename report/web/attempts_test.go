package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// from is the client of an address.
func (r *rig) from(address string) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx, address) },
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // who it is does not matter here
	}}
}

// status of a request with a password.
func (r *rig) status(client *http.Client, password string) (int, http.Header) {
	r.Helper()
	q := r.request(http.MethodGet, "/api/v1/cluster", nil)
	q.SetBasicAuth(user, password)
	response, err := client.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header
}

func (r *rig) told() (all []string) {
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestWhoGoesThroughPasswordsIsRefusedAndOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		guesser, other := r.from("127.0.0.2"), r.from("127.0.0.3")
		for i := range maxAttempts {
			if status, _ := r.status(guesser, fmt.Sprint("guess", i)); status != http.StatusUnauthorized {
				t.Fatalf("guess %d: %d", i, status)
			}
		}
		if told := r.told(); len(told) > 0 {
			t.Errorf("reported before any client is refused: %q", told)
		}
		status, header := r.status(guesser, "one more")
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			t.Errorf("one more: %d, %v", status, header)
		}
		// Or it would learn which of its guesses is right.
		if status, _ := r.status(guesser, password); status != http.StatusTooManyRequests {
			t.Errorf("the right one among too many guesses: %d", status)
		}
		if status, _ := r.status(other, password); status != http.StatusOK {
			t.Errorf("another client with the right password: %d", status)
		}
		told := r.told()
		if len(told) != 1 || !strings.Contains(told[0], reasonWrongPasswords) || !strings.Contains(told[0], "127.0.0.2") || strings.Contains(told[0], "guess") {
			t.Errorf("reported %q", told)
		}
		<-time.After(attemptReturns)
		if status, _ := r.status(guesser, password); status != http.StatusOK {
			t.Errorf("the right password a while later: %d", status)
		}
		if status, _ := r.status(guesser, "wrong again"); status != http.StatusUnauthorized {
			t.Error("it may not try one more")
		}
		if status, _ := r.status(guesser, "and again"); status != http.StatusTooManyRequests {
			t.Errorf("it may try two at once: %d", status)
		}
		if told := r.told(); len(told) > 0 {
			t.Errorf("reported again, of the same client: %q", told)
		}
	})
}

func TestTheRightPasswordIsNeverTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		client := r.from("127.0.0.2")
		for range 3 * maxAttempts {
			if status, _ := r.status(client, password); status != http.StatusOK {
				t.Fatalf("got %d", status)
			}
		}
	})
}

func TestAtTheSameTimeNoMoreGuessesAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		var mu sync.Mutex
		got := map[int]int{}
		var all sync.WaitGroup
		for i := range 4 * maxAttempts {
			all.Go(func() {
				status, _ := r.status(r.from("127.0.0.2"), fmt.Sprint("guess", i))
				mu.Lock()
				defer mu.Unlock()
				got[status]++
			})
		}
		all.Wait()
		if got[http.StatusUnauthorized] != maxAttempts || got[http.StatusTooManyRequests] != 3*maxAttempts {
			t.Errorf("got %v", got)
		}
	})
}

func TestWithANewPasswordEverybodyBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for range maxAttempts {
			r.status(r.http, "new")
		}
		wait.Until(r, "it is refused", func() bool { status, _ := r.status(r.http, password); return status == http.StatusTooManyRequests })
		r.secret("access", map[string]string{userKey: user, passwordKey: "new"})
		other := r.from("127.0.0.2")
		wait.Until(r, "the new password counts", func() bool { status, _ := r.status(other, "new"); return status == http.StatusOK })
		if status, _ := r.status(r.http, "new"); status != http.StatusOK {
			t.Errorf("the client that was refused gets %d with the new password", status)
		}
	})
}

func TestAHostWithManyAddressesIsOneClient(t *testing.T) {
	a := newAttempts(clock.RealClock{})
	for i := range maxAttempts {
		a.judge(listener.ClientOf(fmt.Sprintf("[2001:db8::%x]:1000", i+1)), credentials{}, false)
	}
	if v := a.judge(listener.ClientOf("[2001:db8::ffff]:1000"), credentials{}, true); !v.refused {
		t.Error("the next address of the same /64 may try more")
	}
	if v := a.judge(listener.ClientOf("[2001:db8:0:1::1]:1000"), credentials{}, false); v.refused {
		t.Error("another network is refused")
	}
}

func TestWhatIsRememberedOfClientsIsBounded(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	a := newAttempts(now)
	client := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range 3 * maxKnownClients {
		now.SetTime(now.Now().Add(time.Millisecond))
		a.judge(client(i), credentials{}, false)
		if i%7 == 0 {
			a.judge(client(1_000_000+i), credentials{}, true) // who knows the password is not remembered
		}
	}
	if n := len(a.clients.Keys()); n > maxKnownClients {
		t.Errorf("%d clients are remembered", n)
	}
	known := func(i int) bool { return slices.Contains(a.clients.Keys(), any(guesser{client(i), credentials{}})) }
	if !known(3*maxKnownClients-1) || known(0) {
		t.Error("the newest is forgotten, or the oldest is not")
	}
	now.SetTime(now.Now().Add(maxAttempts*attemptReturns + time.Second))
	a.judge(client(0), credentials{}, false)
	if n := len(a.clients.Keys()); n != 1 {
		t.Errorf("%d are remembered of whom nothing counts any more", n)
	}
}

func TestManyClientsThatGuessAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		guess := func(client int) {
			for range maxAttempts + 1 {
				r.status(r.from(fmt.Sprintf("127.0.1.%d", client)), "wrong")
			}
		}
		for client := range 4 {
			guess(client + 1)
		}
		if told := r.told(); len(told) != 1 || !strings.Contains(told[0], "127.0.1.1") {
			t.Errorf("reported %q", told)
		}
		<-time.After(refusalEventEvery)
		guess(5)
		if told := r.told(); len(told) != 1 || !strings.Contains(told[0], "127.0.1.5") || !strings.Contains(told[0], "3 others") {
			t.Errorf("reported %q", told)
		}
	})
}
