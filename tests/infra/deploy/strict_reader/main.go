// Reads YAML documents from standard input with the types of Kubernetes, strictly: an unknown field, a field that stands
// twice, a value of another type or an unknown kind is an error.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		document, err := documents.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, kind, err := strict.Decode(document, nil, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, kind, err)
			failed = true
			continue
		}
		fmt.Println(kind.Kind)
	}
	if failed {
		os.Exit(1)
	}
}
