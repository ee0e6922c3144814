package convert

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// filler fills every field with a value derived from the fuzz data, new fields included. Numbers are at least 0,
// quantities above 0.
type filler struct{ data []byte }

// addSeeds adds an input that fills every field, and some with other values in them.
func addSeeds(f *testing.F) {
	f.Add([]byte{})
	ones := make([]byte, 2048)
	for i := range ones {
		ones[i] = 1
	}
	f.Add(ones)
	for i := range uint64(8) {
		source := rand.NewPCG(i, i)
		var seed []byte
		for range 256 {
			seed = binary.LittleEndian.AppendUint64(seed, source.Uint64())
		}
		f.Add(seed)
	}
}

func (f *filler) take(n int) []byte {
	n = min(n, len(f.data))
	taken := f.data[:n]
	f.data = f.data[n:]
	return taken
}

func (f *filler) number() (n uint64) {
	for _, b := range f.take(1) {
		n = uint64(b)
	}
	return n
}

func (f *filler) string() string { return string(f.take(int(f.number() % 8))) }

func oneOf[T any](f *filler, all ...T) T { return all[f.number()%uint64(len(all))] }

func (f *filler) fill(to any) { f.set(reflect.ValueOf(to).Elem()) }

func (f *filler) set(v reflect.Value) {
	switch to := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*to = *resource.NewQuantity(1+int64(f.number()), resource.BinarySI)
		return
	case *time.Time:
		*to = time.UnixMicro(1 + int64(f.number())).UTC()
		return
	case *metav1.MicroTime:
		f.set(reflect.ValueOf(&to.Time).Elem())
		return
	case *metav1.Time:
		f.set(reflect.ValueOf(&to.Time).Elem())
		return
	case *v1beta1.Provisioning:
		*to = oneOf(f, "", v1beta1.Thin, v1beta1.Thick)
		return
	case *v1beta1.SourceKind:
		*to = oneOf(f, v1beta1.SourceVolume, v1beta1.SourceSnapshot)
		return
	case *backend.Provisioning:
		*to = oneOf(f, "", backend.Thin, backend.Thick)
		return
	case *backend.SourceKind:
		*to = oneOf(f, backend.SourceVolume, backend.SourceSnapshot)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.number()%2 == 1)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.number()))
	case reflect.Uint64:
		v.SetUint(f.number())
	case reflect.String:
		v.SetString(f.string())
	case reflect.Pointer:
		if f.number()%4 > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.set(v.Elem())
		}
	case reflect.Slice:
		for range f.number() % 4 {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			f.set(v.Index(v.Len() - 1))
		}
	case reflect.Map:
		for range f.number() % 4 {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			v.SetMapIndex(reflect.ValueOf(f.string()), reflect.ValueOf(f.string()))
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.set(field)
		}
	default:
		panic("no value is known for " + v.Type().String())
	}
}
