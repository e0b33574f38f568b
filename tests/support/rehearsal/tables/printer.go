// Prints the table of a test as JSON. `instrument.go` adds this file to the package of the test.
package tables

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// Appends a line with the test, its table and what its cases share to the file that $KUEUE_TABLES names.
func printTable(t *testing.T, table any, shared map[string]any) bool {
	line, err := json.Marshal(map[string]any{
		"test":    t.Name(),
		"printed": time.Now().UTC().Truncate(time.Second),
		"shared":  plain(reflect.ValueOf(shared)),
		"cases":   plain(reflect.ValueOf(table)),
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(os.Getenv("KUEUE_TABLES"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	return true
}

// A value as maps, lists and scalars, unexported fields included. Objects of an API are as their JSON.
func plain(value reflect.Value) any {
	value = readable(value)
	switch value.Kind() {
	case reflect.Invalid, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return nil
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		if failure, ok := value.Interface().(error); ok {
			return failure.Error()
		}
		return plain(value.Elem())
	case reflect.Map:
		entries := map[string]any{}
		for _, key := range value.MapKeys() {
			entries[fmt.Sprint(key.Interface())] = plain(value.MapIndex(key))
		}
		return entries
	case reflect.Slice, reflect.Array:
		items := []any{}
		for index := range value.Len() {
			items = append(items, plain(value.Index(index)))
		}
		return items
	case reflect.Struct:
		return ofStruct(value)
	default:
		return value.Interface()
	}
}

func ofStruct(value reflect.Value) any {
	name := value.Type().PkgPath()
	if strings.HasPrefix(name, "k8s.io/api") || strings.Contains(name, "/apis/") || name == "time" {
		// A pointer, because an interface's method of the value may have a pointer as receiver.
		return value.Addr().Interface()
	}
	if name != "" && !strings.Contains(name, "kueue") {
		return nil // clocks and options of comparisons
	}
	fields := map[string]any{}
	for index := range value.NumField() {
		fields[value.Type().Field(index).Name] = plain(value.Field(index))
	}
	return fields
}

// The value where it can be read and addressed, whether or not its field is exported.
func readable(value reflect.Value) reflect.Value {
	if !value.IsValid() {
		return value
	}
	if value.CanAddr() {
		return reflect.NewAt(value.Type(), unsafe.Pointer(value.UnsafeAddr())).Elem()
	}
	copied := reflect.New(value.Type()).Elem()
	copied.Set(value)
	return copied
}
