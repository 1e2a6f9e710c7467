#!/bin/sh
# The entry point of the target `spark`: starts what a pod is for.
#
#   executor            of a driver in another pod, which sets SPARK_*: what Spark's own images do
#   driver ARGUMENTS    of `spark-submit --deploy-mode cluster`, likewise
#   ARGUMENTS           replicator ARGUMENTS
set -eu
bin=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
executor)
    home=$("$bin/python" "$bin/find_spark_home.py")
    options=$(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9][0-9]*\)=/\1 /p' | sort -n | cut -d' ' -f2-)
    set -- # the options of Java, one by one: each may contain spaces
    while IFS= read -r option; do
        [ -z "$option" ] || set -- "$@" "$option"
    done <<END
$options
END
    # Spark's own order: files of configuration, spark.executor.extraClassPath (SPARK_CLASSPATH), Spark's jars
    class_path="${SPARK_CONF_DIR:-$home/conf}${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}:$home/jars/*"
    exec java "$@" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
driver)
    shift
    exec "$bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
*)
    exec "$bin/replicator" "$@"
    ;;
esac
