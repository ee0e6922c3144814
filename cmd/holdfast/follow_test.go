package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
	"github.com/holdfast-storage/holdfast/trace"
)

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

func TestDebug_LogFollowsTheServedStorageClusterAtOnce(t *testing.T) {
	c := client.NewForConfigOrDie(miniapi.New(t).Config())
	clusters := c.HoldfastV1beta1().StorageClusters()
	l := &logging{floor: slog.LevelWarn, traces: trace.New("")}
	l.level.Set(l.floor)
	begin(t, check.Got(l.follow(holdfast.NewSharedInformerFactory(c, 0), quiet))(t))
	level := func(want slog.Level) {
		t.Helper()
		wait.Until(t, "the level "+want.String(), func() bool { return l.level.Level() == want })
	}
	for _, name := range []string{"a", "b"} { // of which the first is served
		check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.StorageClusterSpec{Debug: true}}, metav1.CreateOptions{}))(t)
		level(slog.LevelDebug)
	}
	for _, debug := range []bool{false, true, false} {
		wait.Modify(t, clusters.Get, clusters.Update, "a", func(o *v1beta1.StorageCluster) { o.Spec.Debug = debug })
		level(map[bool]slog.Level{false: slog.LevelWarn, true: slog.LevelDebug}[debug])
	}
	check.OK(t, clusters.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	level(slog.LevelDebug)
	check.OK(t, clusters.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	level(slog.LevelWarn)
}

func TestDebug_LogOfANodeFollowsItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logging{floor: slog.LevelWarn, traces: trace.New("")}
		l.level.Set(l.floor)
		file := filepath.Join(t.TempDir(), "debug")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = l.followFiles(filepath.Dir(file), slog.New(slog.DiscardHandler))(ctx) }()
		for _, step := range []struct {
			text string
			want slog.Level
		}{{"", slog.LevelWarn}, {"true", slog.LevelDebug}, {"false", slog.LevelWarn}, {"true", slog.LevelDebug}, {"", slog.LevelWarn}} {
			check.OK(t, os.WriteFile(file, []byte(step.text), 0o600))
			wait.Until(t, fmt.Sprintf("%s by %q", step.want, step.text), func() bool { return l.level.Level() == step.want })
		}
	})
}

func TestDebug_FlagSetsTheLowestLevelInAnyCaseAlsoOfAnEarlierLogger(t *testing.T) {
	for _, floor := range []slog.Level{slog.LevelDebug - 4, slog.LevelDebug, slog.LevelInfo, slog.LevelError} {
		l := &logging{floor: floor, format: "text", traces: trace.New("")}
		log := check.Got(l.logger())(t)
		if l.set(true, "", quiet); l.level.Level() != min(floor, slog.LevelDebug) || !log.Enabled(t.Context(), slog.LevelDebug) {
			t.Errorf("%s and debug: %s", floor, l.level.Level())
		}
		if l.set(false, "", quiet); l.level.Level() != floor || log.Enabled(t.Context(), floor-1) {
			t.Errorf("%s and no debug: %s", floor, l.level.Level())
		}
	}
}

func TestDebug_WithoutTheRightToWatchTheLevelStaysAndIsReportedOnce(t *testing.T) {
	asked, forbid := make(chan struct{}, 100), refuse(http.StatusForbidden, "Forbidden")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		forbid(w, r)
	}))
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL}
	out := &buffer{}
	l := &logging{traces: trace.New("")}
	end := begin(t, check.Got(l.follow(holdfast.NewSharedInformerFactory(client.NewForConfigOrDie(config), 0), slog.New(slog.NewTextHandler(out, nil))))(t))
	wait.Until(t, "the warning", func() bool {
		return strings.Contains(out.String(), "spec.debug and spec.traces have no effect")
	})
	for range 6 { // it tries again, perhaps with two requests at a time
		<-asked
	}
	check.Report(t, end())
	if n := strings.Count(out.String(), "spec.debug and spec.traces have no effect"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestTraces_AreSentWhereTheStorageClusterAndTheFileOfANodeSay(t *testing.T) {
	sent := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent <- r.URL.Path }))
	t.Cleanup(collector.Close)
	files := t.TempDir()
	c := client.NewForConfigOrDie(miniapi.New(t).Config())
	clusters := c.HoldfastV1beta1().StorageClusters()
	check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))(t)
	for name, of := range map[string]struct {
		follow func(l *logging) part
		write  func(endpoint string)
	}{
		"a controller": {
			func(l *logging) part {
				return check.Got(l.follow(holdfast.NewSharedInformerFactory(c, 0), quiet))(t)
			},
			func(endpoint string) {
				wait.Modify(t, clusters.Get, clusters.Update, "a", func(o *v1beta1.StorageCluster) { o.Spec.Traces = endpoint })
			},
		},
		"a node": {
			func(l *logging) part { return l.followFiles(files, quiet) },
			func(endpoint string) {
				check.OK(t, os.WriteFile(filepath.Join(files, "traces"), []byte(endpoint), 0o600))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &logging{floor: slog.LevelError, format: "text", traces: trace.New(name)}
			log := check.Got(l.logger())(t)
			of.write(collector.URL)
			begin(t, of.follow(l))
			wait.Until(t, "a span", func() bool {
				log.Debug("format", "volume", "v", "duration", time.Second)
				return len(sent) > 0
			})
			if path := <-sent; path != "/v1/traces" {
				t.Errorf("it was sent to %s", path)
			}
		})
	}
}
