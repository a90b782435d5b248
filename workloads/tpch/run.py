"""TPC-H's queries on DuckDB, in memory: what `schedlab load tpch --original` starts.

    run.py DATA QUERIES STREAMS QUERIES_A_STREAM THREADS SCALE [ANSWERS]

DATA has the tables as Parquet files, QUERIES the files q01.sql to q22.sql. All streams start together; the time from
then until the last one has ended is printed in ns. With ANSWERS, each query's rows of the first stream are written
there as JSON, by number.
"""

import json
import os
import sys
import threading
import time

import duckdb

TABLES = "customer lineitem nation orders part partsupp region supplier".split()
# The order of the power test (specification, appendix A, stream 0). Further streams begin elsewhere in it.
ORDER = [14, 2, 9, 20, 6, 17, 18, 8, 21, 13, 3, 22, 16, 4, 11, 15, 1, 10, 19, 5, 7, 12]


def main():
    data, queries = sys.argv[1:3]
    streams, count, threads = (int(word) for word in sys.argv[3:6])
    scale = float(sys.argv[6])
    answers = sys.argv[7] if len(sys.argv) > 7 else None

    database = duckdb.connect(":memory:", config={"threads": threads})
    for table in TABLES:
        file = os.path.join(data, f"{table}.parquet").replace("'", "''")
        database.execute(f"create table {table} as select * from read_parquet('{file}')")
    suppliers = database.execute("select count(*) from supplier").fetchone()[0]
    if suppliers != round(10_000 * scale):
        sys.exit(f"{data} has data of scale {suppliers / 10_000:g}, not {scale:g}")
    texts = {}
    for number in ORDER:
        with open(os.path.join(queries, f"q{number:02}.sql"), encoding="utf-8") as file:
            texts[number] = file.read()

    found = {}
    failed = []
    start = threading.Barrier(streams + 1)

    def stream(index):
        connection = database.cursor()
        start.wait()
        try:
            for at in range(count):
                number = ORDER[(index + at) % len(ORDER)]
                given = {"fraction": 0.0001 / scale} if "$fraction" in texts[number] else None
                rows = connection.execute(texts[number], given).fetchall()
                if index == 0:
                    found[number] = rows
        except duckdb.Error as error:
            failed.append(f"query {number}: {error}")

    workers = [threading.Thread(target=stream, args=(index,)) for index in range(streams)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter_ns()
    for worker in workers:
        worker.join()
    taken = time.perf_counter_ns() - began
    if failed:
        sys.exit(failed[0])
    if answers:
        with open(answers, "w", encoding="utf-8") as file:
            json.dump(found, file, default=str)
    print(taken)


main()
