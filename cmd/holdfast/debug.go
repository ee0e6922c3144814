package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// followDebug sets the level of the log as the StorageCluster has spec.debug, at once. What --log-level asks for is
// logged in any case. Without the right to watch, or the kind, it stays at that.
// The watch is begun by the part, unless it is under way already.
func (l *logging) followDebug(watches holdfast.SharedInformerFactory, log *slog.Logger) (part, error) {
	informer := holdfastv1.ToTypedStorageClusterInformer(watches.Holdfast().V1().StorageClusters()).TypedInformer()
	look := func() {
		var all []*v1.StorageCluster
		for _, o := range informer.GetIndexer().List() {
			all = append(all, o.(*v1.StorageCluster))
		}
		served := v1.Served(all)
		l.debug(served != nil && served.Spec.Debug, log)
	}
	_, err := informer.AddTypedEventHandler(holdfastv1.StorageClusterHandlerFuncs{
		AddFunc:    func(*v1.StorageCluster) { look() },
		UpdateFunc: func(_, _ *v1.StorageCluster) { look() },
		DeleteFunc: func(holdfastv1.DeletedStorageCluster) { look() },
	})
	if err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(toldOnce(log, "the StorageClusters cannot be watched, so spec.debug has no effect; trying again")); err != nil {
		return nil, err
	}
	return startWatches(watches), nil
}

// startWatches is a part that begins what was asked for and is not under way yet.
func startWatches(watches holdfast.SharedInformerFactory) part {
	return func(ctx context.Context) error {
		watches.StartWithContext(ctx)
		<-ctx.Done()
		return nil
	}
}

// debug changes the level between what was asked for and all.
func (l *logging) debug(on bool, log *slog.Logger) {
	level := l.floor
	if on {
		level = min(level, slog.LevelDebug)
	}
	if l.level.Level() != level {
		log.Info("the log changes its level", "level", level.String(), "debug", on)
		l.level.Set(level)
	}
}

// toldOnce logs the first time that a watch fails; it is tried again all the time.
func toldOnce(log *slog.Logger, message string) cache.WatchErrorHandlerWithContext {
	var told atomic.Bool
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !told.Swap(true) {
			log.Warn(message, "error", err) //nolint:sloglint // of two
		}
	}
}
