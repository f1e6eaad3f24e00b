"""Spark for small data on few cores: compile little, and shuffle between two."""

CLUSTER = "local-cluster[2,1,512]"  # two workers
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
# for the environment variable PYSPARK_SUBMIT_ARGS
SUBMIT = " ".join([*(f"--conf {k}='{v}'" for k, v in SETTINGS.items()), "pyspark-shell"])
