package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// valid is a part that could be made.
func valid(t *testing.T) func(part, error) part {
	return func(p part, err error) part {
		t.Helper()
		check.OK(t, err)
		return p
	}
}

// begin runs a part until the test ends, and returns what ends it and waits for its result.
func begin(t *testing.T, p part) (end func() error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = p(ctx)
	}()
	end = func() error {
		stop()
		<-ended
		return result
	}
	t.Cleanup(func() { _ = end() })
	return end
}

func TestDebug_LogFollowsTheStorageClusterAtOnce(t *testing.T) {
	c := client.NewForConfigOrDie(miniapi.New(t).Config())
	clusters := c.HoldfastV1beta1().StorageClusters()
	l := &logging{floor: slog.LevelWarn}
	l.level.Set(l.floor)
	begin(t, valid(t)(l.followDebug(holdfast.NewSharedInformerFactory(c, 0), slog.New(slog.DiscardHandler))))
	level := func(want slog.Level) {
		t.Helper()
		wait.Until(t, "the level "+want.String(), func() bool { return l.level.Level() == want })
	}
	set := func(name string, debug bool) {
		t.Helper()
		o := check.Got(clusters.Get(t.Context(), name, metav1.GetOptions{}))(t)
		o.Spec.Debug = debug
		check.Got(clusters.Update(t.Context(), o, metav1.UpdateOptions{}))(t)
	}
	check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.StorageClusterSpec{Debug: true}}, metav1.CreateOptions{}))(t)
	level(slog.LevelDebug)
	set("a", false)
	level(slog.LevelWarn)
	set("a", true)
	level(slog.LevelDebug)
	check.OK(t, clusters.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	level(slog.LevelWarn)
}

func TestDebug_LogOfANodeFollowsItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logging{floor: slog.LevelWarn}
		l.level.Set(l.floor)
		file := filepath.Join(t.TempDir(), "debug")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = l.followDebugFile(file, slog.New(slog.DiscardHandler))(ctx) }()
		for _, step := range []struct {
			text string
			want slog.Level
		}{{"", slog.LevelWarn}, {"true", slog.LevelDebug}, {"false", slog.LevelWarn}, {"true", slog.LevelDebug}, {"", slog.LevelWarn}} {
			check.OK(t, os.WriteFile(file, []byte(step.text), 0o600))
			wait.Until(t, fmt.Sprintf("%s by %q", step.want, step.text), func() bool { return l.level.Level() == step.want })
		}
	})
}

func TestDebug_OnlyTheServedStorageClusterSetsTheLevel(t *testing.T) {
	c := client.NewForConfigOrDie(miniapi.New(t).Config())
	clusters := c.HoldfastV1beta1().StorageClusters()
	for _, name := range []string{"a", "b"} {
		check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.StorageClusterSpec{Debug: true}}, metav1.CreateOptions{}))(t)
	}
	l := &logging{}
	begin(t, valid(t)(l.followDebug(holdfast.NewSharedInformerFactory(c, 0), slog.New(slog.DiscardHandler))))
	wait.Until(t, "the level", func() bool { return l.level.Level() == slog.LevelDebug })
	a := check.Got(clusters.Get(t.Context(), "a", metav1.GetOptions{}))(t)
	a.Spec.Debug = false
	check.Got(clusters.Update(t.Context(), a, metav1.UpdateOptions{}))(t)
	wait.Until(t, "the level of the older one", func() bool { return l.level.Level() == slog.LevelInfo })
	check.OK(t, clusters.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	wait.Until(t, "the level of the one that is left", func() bool { return l.level.Level() == slog.LevelDebug })
}

func TestDebug_FlagSetsTheLowestLevelInAnyCase(t *testing.T) {
	for _, floor := range []slog.Level{slog.LevelDebug - 4, slog.LevelDebug, slog.LevelInfo, slog.LevelError} {
		l := &logging{floor: floor}
		l.level.Set(floor)
		log := slog.New(slog.DiscardHandler)
		if l.debug(true, log); l.level.Level() != min(floor, slog.LevelDebug) {
			t.Errorf("%s and debug: %s", floor, l.level.Level())
		}
		if l.debug(false, log); l.level.Level() != floor {
			t.Errorf("%s and no debug: %s", floor, l.level.Level())
		}
	}
}

func TestDebug_EarlierLoggerFollowsTheLevel(t *testing.T) {
	l := &logging{floor: slog.LevelInfo, format: "text"}
	log := check.Got(l.logger())(t)
	before := log.Enabled(t.Context(), slog.LevelDebug)
	l.debug(true, slog.New(slog.DiscardHandler))
	if after := log.Enabled(t.Context(), slog.LevelDebug); before || !after {
		t.Errorf("debug is logged: before %t, after %t", before, after)
	}
}

func TestDebug_WithoutTheRightToWatchTheLevelStaysAndIsReportedOnce(t *testing.T) {
	asked := make(chan struct{}, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`)
	}))
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL}
	out := &logText{}
	l := &logging{}
	end := begin(t, valid(t)(l.followDebug(holdfast.NewSharedInformerFactory(client.NewForConfigOrDie(config), 0), slog.New(slog.NewTextHandler(out, nil)))))
	wait.Until(t, "the warning", func() bool { return strings.Contains(out.String(), "spec.debug has no effect") })
	for range 6 { // it tries again, perhaps with two requests at a time
		<-asked
	}
	check.Report(t, end())
	if n := strings.Count(out.String(), "spec.debug has no effect"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// logText is what was logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *logText) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *logText) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
