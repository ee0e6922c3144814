package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// followDebug sets the level of the log as the StorageCluster has spec.debug, at once. What --log-level asks for is
// logged in any case. Without the right to watch, or the kind, it stays at that.
func (l *logging) followDebug(c client.Interface, log *slog.Logger) part {
	return func(ctx context.Context) error {
		clusters := holdfast.NewSharedInformerFactory(c, 0).Holdfast().V1().StorageClusters()
		informer := holdfastv1.ToTypedStorageClusterInformer(clusters).TypedInformer()
		look := func() {
			var all []*v1.StorageCluster
			for _, o := range informer.GetIndexer().List() {
				all = append(all, o.(*v1.StorageCluster))
			}
			served := v1.Served(all)
			l.debug(served != nil && served.Spec.Debug, log)
		}
		if _, err := informer.AddTypedEventHandler(holdfastv1.StorageClusterHandlerFuncs{
			AddFunc:    func(*v1.StorageCluster) { look() },
			UpdateFunc: func(_, _ *v1.StorageCluster) { look() },
			DeleteFunc: func(holdfastv1.DeletedStorageCluster) { look() },
		}); err != nil {
			return err
		}
		if err := informer.SetWatchErrorHandlerWithContext(toldOnce(log)); err != nil {
			return err
		}
		informer.RunWithContext(ctx)
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
func toldOnce(log *slog.Logger) cache.WatchErrorHandlerWithContext {
	var told atomic.Bool
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !told.Swap(true) {
			log.Warn("the StorageClusters cannot be watched, so spec.debug has no effect; trying again", "error", err)
		}
	}
}
